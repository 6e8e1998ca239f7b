"""Is Tenon's result PyTorch's? Dtype, shape and values; the reason where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tenon as tn
import torch
from bridge import tensor_to_torch, tensors

# Rounding: Tenon and PyTorch add in different orders.
TOLERANCE = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float32: (2e-5, 1e-5),
    torch.float64: (1e-9, 1e-9),
    torch.complex64: (2e-5, 1e-5),
    torch.complex128: (1e-9, 1e-9),
}


# The sample in words, what is wrong with Tenon's answer, and why another answer counts.
Verdict = tuple[str, str | None] | tuple[str, None, str]

# Vectors that are defined up to a factor of size 1, which LAPACK chooses: a result's number, and
# the dimension that numbers its vectors. All of an operator get the same factor, or its conjugate.
FREE = {
    "linalg.eigh": {1: -1},
    "linalg.svd": {0: -1, 2: -2},
    "svd": {0: -1, 2: -1},
    "svd_lowrank": {0: -1, 2: -1},
    "pca_lowrank": {0: -1, 2: -1},
}


class Different(Exception):
    """The results differ; the message says in what."""


def verdict(what: str, ask: Callable[[], str | None]) -> Verdict:
    """Asks Tenon; whatever it raises is a fault, and what it returns why another answer counts."""
    try:
        why = ask()
    except Different as e:
        return what, str(e)
    except Exception as e:  # any exception at all is an answer that PyTorch does not give
        return what, f"{type(e).__name__}: {e}"[:300]
    return (what, None, why) if why else (what, None)


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


def pairs(mine: Any, theirs: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of two nests, one by one, as PyTorch's."""
    ours = tensors(mine, tn.Tensor)
    yield from zip(map(tensor_to_torch, ours), tensors(theirs, torch.Tensor), strict=True)


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance of two elements; infinite where one alone is not a finite number."""
    wide = torch.complex128 if b.is_complex() else torch.float64
    a, b = a.detach().to(wide), b.detach().to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=torch.inf)
    return float(gap.max()) if gap.numel() else 0.0


def nearer(mine: Any, theirs: Any, exact: Any) -> bool:
    """Whether no tensor of Tenon's is farther from PyTorch's float64 answer than PyTorch's own."""
    check(mine, theirs, values=False)
    truths = tensors(exact, torch.Tensor)
    return all(
        apart(a, truth) <= apart(b, truth)
        for (a, b), truth in zip(pairs(mine, theirs), truths, strict=True)
    )


def turned(name: str, mine: Any, theirs: Any) -> list[torch.Tensor]:
    """Tenon's tensors, free vectors multiplied by what brings them closest to PyTorch's."""
    both = list(pairs(mine, theirs))
    free = FREE[name]
    factor: torch.Tensor | None = None
    out = [a for a, _ in both]
    for i, dim in free.items():
        a, b = both[i]
        if factor is None:
            product = (a.conj() * b).sum(-2 if dim == -1 else -1)
            size = product.abs()
            factor = torch.where(size == 0, torch.ones_like(product), product / size)
            count = both[1][0].shape[-1] if len(both) > 2 else factor.shape[-1]
            factor = factor[..., :count]
        n = factor.shape[-1]
        by = factor.conj().unsqueeze(-1) if dim == -2 else factor.unsqueeze(-2)
        # What is left spans a space whose basis is free: that of PyTorch's, seen in Tenon's.
        kept = a.narrow(dim, n, a.shape[dim] - n)
        other = b.narrow(dim, n, b.shape[dim] - n)
        kept = other @ kept.mH @ kept if dim == -2 else kept @ (kept.mH @ other)
        out[i] = torch.cat([a.narrow(dim, 0, n) * by, kept], dim)
    return out


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


def check_strides(mine: Any, theirs: Any) -> None:
    """Raises Different unless the elements of all tensors lie alike, where that shows."""
    for a, b in zip(tensors(mine, tn.Tensor), tensors(theirs, torch.Tensor), strict=True):
        if b.layout is not torch.strided or tuple(a.shape) != tuple(b.shape) or not b.numel():
            continue
        both = [[s for s, n in zip(t.stride(), b.shape, strict=True) if n > 1] for t in (a, b)]
        if both[0] != both[1]:
            raise Different(f"strides {a.stride()}, not {b.stride()} of {tuple(b.shape)}")


def check_tensor(mine: tn.Tensor, theirs: torch.Tensor, values: bool) -> None:
    if str(mine.dtype).split(".")[-1] != str(theirs.dtype).split(".")[-1]:
        raise Different(f"dtype {mine.dtype}, not {theirs.dtype}")
    if tuple(mine.shape) != tuple(theirs.shape):
        raise Different(f"shape {tuple(mine.shape)}, not {tuple(theirs.shape)}")
    if not values or not theirs.numel():
        return
    check_values(tensor_to_torch(mine), theirs)


def check_values(a: torch.Tensor, theirs: torch.Tensor) -> None:
    b = theirs.detach().resolve_conj().resolve_neg().to_dense()
    rtol, atol = TOLERANCE.get(b.dtype, (0.0, 0.0))
    near = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if b.dtype.is_complex:  # a nan in either part is nan
        near |= a.isnan() & b.isnan()
    if not near.all():
        at = (~near).nonzero()[0].tolist()
        got, want = a[tuple(at)].item(), b[tuple(at)].item()
        raise Different(f"{got}, not {want} at {at} ({int((~near).sum())} elements)")
