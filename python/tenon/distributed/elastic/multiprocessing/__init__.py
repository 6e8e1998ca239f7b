"""Processes of a launcher."""
