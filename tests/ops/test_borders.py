"""Elements at the border of an activation, in dtypes that cannot hold the number given for it."""

from __future__ import annotations

from typing import Any

import pytest
import stored
import tenon as tn

BORDERS = [0.1, 0.3, 0.7, 1.1, 2.3]


def at_border(lib: Any, name: str, dtype: str, border: float) -> list[Any]:
    """Results and gradient at the dtype's number next to the border, and beside it."""
    near = lib.tensor([border, -border], dtype=getattr(lib, dtype))
    beside = near.float() * (1 + lib.finfo(near.dtype).eps)
    x = lib.cat([near, beside.to(near.dtype), near * 0, near * lib.inf]).requires_grad_()
    fn = getattr(lib.nn.functional, name)
    out = fn(x, border, 0.25) if name == "threshold" else fn(x, border)
    out.sum().backward()
    return [out.detach().double(), x.grad.double()]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", ["hardshrink", "threshold"])
def test_the_border_itself(name: str, dtype: str) -> None:
    mine = [at_border(tn, name, dtype, border) for border in BORDERS]
    stored.same(
        mine,
        stored.of_torch(lambda lib: [at_border(lib, name, dtype, border) for border in BORDERS]),
        rtol=0,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_threshold_passes_gradients_where_it_passes_elements(dtype: str) -> None:
    for border in BORDERS:
        out, grad = at_border(tn, "threshold", dtype, border)
        assert (grad.ne(0) == out.ne(0.25)).all()
