"""Tensors as Python sees them, beyond the extension's type: methods, text, pickling, settings."""
