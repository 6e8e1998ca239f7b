"""Samples of the databases, changed: other layouts, values, sizes and second dtypes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

Change = Callable[[torch.Tensor], torch.Tensor]
MOST = 10  # samples of an entry for one change, spread over all of them


def turned(t: torch.Tensor) -> torch.Tensor:
    """The first dimension's elements lie side by side."""
    back = tuple(reversed(range(t.ndim)))
    return t.permute(back).contiguous().permute(back)


def gaps(t: torch.Tensor) -> torch.Tensor:
    """Every second element of memory, from the second on."""
    out = t.new_zeros((*t.shape, 2))[..., 1]
    return out.copy_(t)


def expanded(t: torch.Tensor) -> torch.Tensor:
    """The last dimension of more than one element repeats its first."""
    dim = next((d for d in reversed(range(t.ndim)) if t.shape[d] > 1), None)
    return t if dim is None else t.narrow(dim, 0, 1).expand(t.shape)


def swapped(t: torch.Tensor) -> torch.Tensor:
    """The last two dimensions of memory change places."""
    return t.mT.contiguous().mT if t.ndim > 1 else t


def odd(t: torch.Tensor) -> torch.Tensor:
    """nan, infinities, both zeros, the smallest and very large numbers among the elements."""
    if not (t.is_floating_point() or t.is_complex()):
        return t
    wide = torch.finfo(t.dtype)
    some = [math.nan, math.inf, -math.inf, -0.0, 0.0, wide.max, -wide.max, wide.smallest_normal,
            wide.smallest_normal * wide.eps, 1.0, -1.0, 0.5, 2.5, 1e6, -1e6, wide.eps]  # fmt: skip
    at = torch.randint(3 * len(some), t.shape)
    values = torch.tensor(some + [0.0] * 2 * len(some), dtype=t.dtype)[at]
    return torch.where(at < len(some), values, t)


def empty(t: torch.Tensor) -> torch.Tensor:
    return t.narrow(0, 0, 0) if t.ndim else t


def single(t: torch.Tensor) -> torch.Tensor:
    return t.narrow(0, 0, 1) if t.ndim and t.shape[0] else t


def tail(t: torch.Tensor) -> torch.Tensor:
    """The last dimension without elements."""
    return t.narrow(-1, 0, 0) if t.ndim else t


LAYOUTS: dict[str, Change] = {
    "turned": turned, "gaps": gaps, "expanded": expanded, "swapped": swapped,
}  # fmt: skip
VALUES: dict[str, Change] = {"odd values": odd, "empty": empty, "single": single, "tail": tail}


def as_dtype(dtype: torch.dtype) -> Change:
    return lambda t: t.to(dtype) if dtype.is_complex or not t.is_complex() else t


def as_number(t: torch.Tensor) -> Any:
    return t.flatten()[0].item() if t.numel() else t


# Of the arguments behind the first tensor.
SECOND: dict[str, Change] = {
    f"second {str(d)[6:]}": as_dtype(d)
    for d in (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16,
              torch.float64, torch.complex64)
}  # fmt: skip
SECOND |= {"second a number": as_number}
# Of the first one.
FIRST: dict[str, Change] = {
    f"first {str(d)[6:]}": as_dtype(d)
    for d in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64, torch.complex64)
}
CHANGES: dict[str, Change] = {**LAYOUTS, **VALUES, **SECOND, **FIRST}


def varied(drawn: Iterator[Any], change: Change) -> Iterator[Any]:
    """Some of the samples, with every tensor changed, or those that the change is for."""
    every = list(drawn)
    torch.manual_seed(1)

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        made = change(value.detach())
        leaf = isinstance(made, torch.Tensor) and value.requires_grad
        return made.requires_grad_(made.is_floating_point() or made.is_complex()) if leaf else made

    for sample in every[:: 1 + len(every) // MOST]:
        sample = copy.copy(sample)
        try:
            if change not in SECOND.values():
                sample.input = tree_map(one, sample.input)
            if change not in FIRST.values():
                sample.args = tree_map(one, sample.args)
                sample.kwargs = tree_map(one, sample.kwargs)
        except Exception:  # such a sample there is not
            continue
        yield sample
