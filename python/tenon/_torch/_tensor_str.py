"""How tensors print, by PyTorch's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.print import OPTIONS as PRINT_OPTS


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor, without `tensor(` around them."""
    inner = repr(self.detach()).removeprefix("tensor(").rpartition("]")
    text = inner[0] + inner[1] if inner[1] else repr(self.detach())[len("tensor(") : -1]
    return text.replace("\n" + " " * len("tensor("), "\n" + " " * indent)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    return repr(self) if tensor_contents is None else f"tensor({tensor_contents})"


_str_intern = _str


def _add_suffixes(
    tensor_str: str, suffixes: list[str], indent: int, force_newline: bool = False
) -> str:
    """The text with what follows it, on new lines where one is full."""
    parts = [tensor_str]
    last = len(tensor_str) - tensor_str.rfind("\n")
    for suffix in suffixes:
        if force_newline or last + len(suffix) + 2 > PRINT_OPTS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            last, force_newline = indent + len(suffix), False
        else:
            parts.append(", " + suffix)
            last += len(suffix) + 2
    return "".join([*parts, ")"])


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """set_printoptions for the length of a `with` block."""
    kept = tenon.get_printoptions()
    tenon.set_printoptions(**options)
    try:
        yield
    finally:
        tenon.set_printoptions(**kept)
