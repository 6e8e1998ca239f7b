"""How tensors print, by PyTorch's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tenon
from tenon import Tensor


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor, without `tensor(` around them."""
    inner = repr(self.detach()).removeprefix("tensor(").rpartition("]")
    text = inner[0] + inner[1] if inner[1] else repr(self.detach())[len("tensor(") : -1]
    return text.replace("\n" + " " * len("tensor("), "\n" + " " * indent)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    return repr(self) if tensor_contents is None else f"tensor({tensor_contents})"


_str_intern = _str


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """set_printoptions for the length of a `with` block."""
    kept = tenon.get_printoptions()
    tenon.set_printoptions(**options)
    try:
        yield
    finally:
        tenon.set_printoptions(**kept)
