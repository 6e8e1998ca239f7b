"""What packages ask about tensors without values."""

from __future__ import annotations

from tenon import Tensor


def is_fake(x: object) -> bool:
    """Whether a tensor only stands for one while a program is traced: none does here."""
    del x
    return False


class FakeTensor(Tensor):
    """What such tensors are in PyTorch; here no tensor is one, they are on the device meta."""
