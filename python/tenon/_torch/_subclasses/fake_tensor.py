"""What packages ask about tensors without values."""

from __future__ import annotations


def is_fake(x: object) -> bool:
    """Whether a tensor only stands for one while a program is traced: none does here."""
    del x
    return False
