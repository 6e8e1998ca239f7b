"""Plugins: found, compiled, packed, tried out."""
