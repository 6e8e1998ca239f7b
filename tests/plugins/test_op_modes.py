"""Operators of plugins under autocast."""

from __future__ import annotations

import as_user
import pytest
import tenon as tn
from added import COMPOSITE, load, private_cache  # noqa: F401

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


@pytest.mark.parametrize(
    ("rule", "short", "full"),
    [
        ('"low"', tn.bfloat16, tn.bfloat16),
        ('"float32"', tn.float32, tn.float32),
        ('"widest"', tn.bfloat16, tn.float32),
        ("NULL", tn.bfloat16, tn.float32),
    ],
)
def test_autocast(rule: str, short: tn.dtype, full: tn.dtype) -> None:
    name = "cast_" + rule.strip('"').lower()
    schema = f'"{name}::f(Tensor x, Tensor y) -> Tensor"'
    f = load(name, f'{COMPOSITE}{schema}, .formula = "x + y", .autocast = {rule}').f
    x = tn.ones(2, requires_grad=True)
    with tn.autocast("cpu"):
        assert f(x.bfloat16(), x.bfloat16()).dtype == short
        y = f(x, x)
        assert y.dtype == full
        assert f(x.double(), x.double()).dtype == tn.float64
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == tn.float32 and x.grad.tolist() == [2, 2]
    assert f(x, x).dtype == tn.float32


def test_parts_of_a_formula() -> None:
    f = load(
        "cast_parts", f'{COMPOSITE}"cast_parts::f(Tensor x) -> Tensor", .formula = "mm(x, x)"'
    ).f
    with tn.autocast("cpu"):
        assert f(tn.ones(2, 2)).dtype == tn.bfloat16


def test_bad_rule() -> None:
    text = f'{COMPOSITE}"cast_bad::f(Tensor x) -> Tensor", .formula = "x", .autocast = "high"'
    with pytest.raises(ImportError, match="autocast 'high' is none of low, float32, widest"):
        load("cast_bad", text)
