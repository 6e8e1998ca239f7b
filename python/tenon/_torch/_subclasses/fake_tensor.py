"""What packages ask about tensors without values."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tenon import Tensor


def is_fake(x: object) -> bool:
    """Whether a tensor only stands for one while a program is traced: none does here."""
    del x
    return False


def unset_fake_temporarily() -> AbstractContextManager[None]:
    """A block in which tensors have values: they always have."""
    return nullcontext()


class FakeTensor(Tensor):
    """What such tensors are in PyTorch; here no tensor is one, they are on the device meta."""
