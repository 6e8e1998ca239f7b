"""Devices, streams, captured graphs, scaled losses."""
