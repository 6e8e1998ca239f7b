"""What is raised for a file that cannot be read, and one that cannot be written."""

from __future__ import annotations

from _pickle import UnpicklingError  # the module alone is light


class FileFormatError(RuntimeError, UnpicklingError):
    """A file that is damaged, of another format, or asks for something that is refused."""


class UnsafeContentError(FileFormatError):
    """A file that wants to run code or build objects outside the list of plain data types."""


class NotPlainError(TypeError):
    """An object that is no plain data was to be written as such."""
