"""One call on Tenon and on PyTorch with the same data: values, shapes, dtypes, strides, errors and
gradients must agree. Without PyTorch they are compared with what it answered when it was there
(tests/stored.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import stored
import tenon as tn

try:
    import torch
except ImportError:
    torch = None


def tensors_of(lib: Any, arrays: tuple[Any, ...], grad: bool) -> list[Any]:
    """NumPy arrays as tensors of a library, requiring gradients where they can; the rest as is."""
    out = []
    for a in arrays:
        if not isinstance(a, np.ndarray):
            out.append(a)
            continue
        t = lib.from_numpy(a.copy())
        out.append(t.requires_grad_() if grad and a.dtype.kind in "fc" else t)
    return out


def flat(result: Any) -> list[Any]:
    """All tensors of a result."""
    if isinstance(result, (tuple, list)):
        return [t for r in result for t in flat(r)]
    return [result]


def as_numpy(t: Any) -> np.ndarray:
    return stored.array_of(t)[1]


def gradients(lib: Any, fn: Callable[..., Any], arrays: tuple[Any, ...], second: bool) -> list[Any]:
    """Gradients of a weighted sum of all floating results, then of a weighted sum of those."""
    xs = tensors_of(lib, arrays, True)
    outs = [
        t for t in flat(fn(lib, *xs)) if getattr(t, "dtype", None) in (lib.float32, lib.float64)
    ]
    inputs = [x for x in xs if hasattr(x, "requires_grad") and x.requires_grad]
    if not any(o.requires_grad for o in outs):
        return []

    def weighted(ts: list[Any]) -> Any:
        total = None
        for k, t in enumerate(ts):
            w = lib.from_numpy(np.cos(np.arange(t.numel()) + k)).to(t.dtype)
            term = lib.dot(t.reshape(-1) * w, t.reshape(-1))
            total = term if total is None else total + term
        return total

    first = lib.autograd.grad(weighted(outs), inputs, create_graph=second, allow_unused=True)
    got = [g for g in first if g is not None]
    live = [g for g in got if g.requires_grad]
    if second and live:
        more = lib.autograd.grad(weighted(live), inputs, allow_unused=True)
        got += [g for g in more if g is not None]
    return got


def both(fn: Callable[..., Any], *arrays: Any, grad: bool = True, want: Any = None) -> None:
    """fn(lib, *tensors) gives the same on both libraries, and so do its gradients of two orders."""
    ours = fn(tn, *tensors_of(tn, arrays, False))
    if want is not None:
        for a, b in zip(flat(ours), flat(want), strict=True):
            np.testing.assert_allclose(as_numpy(a), b, rtol=1e-6)
    theirs = stored.of_torch(lambda torch: flat(fn(torch, *tensors_of(torch, arrays, False))))
    stored.same(flat(ours), theirs, atol=1e-7)
    if grad and any(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in arrays):
        theirs = stored.of_torch(lambda torch: gradients(torch, fn, arrays, True))
        stored.same(gradients(tn, fn, arrays, True), theirs, rtol=1e-5, atol=1e-7)


def both_fail(fn: Callable[..., Any], *arrays: Any, words: str = "") -> None:
    """fn raises on both libraries, the same kind of exception; `words` stand in our message."""
    try:
        fn(tn, *tensors_of(tn, arrays, False))
    except Exception as err:
        ours = err
    else:
        raise AssertionError("nothing was raised")
    assert words in str(ours), f"{ours}"
    if torch is None:
        return
    try:
        fn(torch, *tensors_of(torch, arrays, False))
    except Exception as theirs:
        assert isinstance(ours, type(theirs)), f"{ours!r}, PyTorch: {theirs!r}"
        assert words in str(theirs), f"PyTorch: {theirs}"
    else:
        raise AssertionError("PyTorch raises nothing")
