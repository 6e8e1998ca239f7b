"""Is Tenon's result PyTorch's? Dtype, shape and values; the reason where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon as tn
import torch
from bridge import tensor_to_torch

# Rounding: Tenon and PyTorch add in different orders.
TOLERANCE = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float32: (2e-5, 1e-5),
    torch.float64: (1e-9, 1e-9),
    torch.complex64: (2e-5, 1e-5),
    torch.complex128: (1e-9, 1e-9),
}


# The sample in words, and what is wrong with Tenon's answer.
Verdict = tuple[str, str | None]


class Different(Exception):
    """The results differ; the message says in what."""


def verdict(what: str, ask: Callable[[], None]) -> Verdict:
    """Asks Tenon; whatever it raises is a fault."""
    try:
        ask()
    except Different as e:
        return what, str(e)
    except Exception as e:  # any exception at all is an answer that PyTorch does not give
        return what, f"{type(e).__name__}: {e}"[:300]
    return what, None


def refusal(what: str, mine: Callable[[], Any], expected: Exception) -> Verdict:
    """Tenon has to refuse what PyTorch refused, with its class of exception and some words."""

    def ask() -> None:
        try:
            mine()
        except Exception as e:
            if not isinstance(e, type(expected)):
                raised, wanted = type(e).__name__, type(expected).__name__
                raise Different(f"{raised}, not {wanted}: {e}"[:200]) from e
            if not str(e):
                raise Different("an empty message") from e
            return
        raise Different(f"no {type(expected).__name__}: {expected}"[:200])

    return verdict(what, ask)


def check(mine: Any, theirs: Any, values: bool = True) -> None:
    """Raises Different unless both nests hold the same; without values, the same kinds."""
    if isinstance(theirs, torch.Tensor):
        if not isinstance(mine, tn.Tensor):
            raise Different(f"{type(mine).__name__}, not a tensor")
        check_tensor(mine, theirs, values)
    elif isinstance(theirs, (list, tuple)):
        if not isinstance(mine, (list, tuple)):
            raise Different(f"{type(mine).__name__}, not a {type(theirs).__name__}")
        if len(mine) != len(theirs):
            raise Different(f"{len(mine)} results, not {len(theirs)}")
        for a, b in zip(mine, theirs, strict=True):
            check(a, b, values)
    elif isinstance(theirs, torch.dtype):
        if str(mine).split(".")[-1] != str(theirs).split(".")[-1]:
            raise Different(f"{mine}, not {theirs}")
    elif isinstance(theirs, float):
        if values and not torch.isclose(
            torch.tensor(float(mine)), torch.tensor(theirs), equal_nan=True
        ):
            raise Different(f"{mine}, not {theirs}")
    elif isinstance(theirs, (int, bool, complex, str, type(None))) and mine != theirs and values:
        raise Different(f"{mine!r}, not {theirs!r}")


def check_tensor(mine: tn.Tensor, theirs: torch.Tensor, values: bool) -> None:
    if str(mine.dtype).split(".")[-1] != str(theirs.dtype).split(".")[-1]:
        raise Different(f"dtype {mine.dtype}, not {theirs.dtype}")
    if tuple(mine.shape) != tuple(theirs.shape):
        raise Different(f"shape {tuple(mine.shape)}, not {tuple(theirs.shape)}")
    if not values or not theirs.numel():
        return
    a, b = tensor_to_torch(mine), theirs.detach().resolve_conj().resolve_neg().to_dense()
    rtol, atol = TOLERANCE.get(b.dtype, (0.0, 0.0))
    near = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if b.dtype.is_complex:  # a nan in either part is nan
        near |= a.isnan() & b.isnan()
    if not near.all():
        at = (~near).nonzero()[0].tolist()
        got, want = a[tuple(at)].item(), b[tuple(at)].item()
        raise Different(f"{got}, not {want} at {at} ({int((~near).sum())} elements)")
