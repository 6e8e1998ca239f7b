"""A function of single tensors that is called for lists of them."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from tenon._torch._higher_order_ops.foreach_map import foreach_map


def numbers(result: Any) -> list[list[float]]:
    return [t.tolist() for t in result]


def test_lists_tensors_and_numbers() -> None:
    a, b = [tn.ones(2), tn.ones(3) * 2], [tn.ones(2) * 3, tn.ones(3)]
    assert numbers(foreach_map(tn.add, a, b)) == [[4, 4], [3, 3, 3]]
    assert numbers(foreach_map(tn.add, a, tuple(b), alpha=2)) == [[7, 7], [4, 4, 4]]
    for two in (2.0, tn.tensor(2.0)):
        assert numbers(foreach_map(tn.mul, a, two)) == [[2, 2], [4, 4, 4]]
    assert foreach_map(tn.add, tn.ones(1), 1).tolist() == [2]
    assert foreach_map(tn.neg, []) == []
    with pytest.raises(ValueError, match=r"lists of one length are needed, got \[2, 1\]"):
        foreach_map(tn.add, a, b[:1])


def test_it_is_compiled_and_has_gradients() -> None:
    x, y = tn.ones(2, requires_grad=True), tn.ones(3, requires_grad=True)
    step = tn.compile(lambda some, rate: foreach_map(lambda t, r: (t * r).exp(), some, rate))
    for rate in (0.0, 1.0):
        assert numbers(step([x, y], rate)) == [
            pytest.approx([tn.tensor(rate).exp().item()] * n) for n in (2, 3)
        ]
    sum(t.sum() for t in foreach_map(tn.mul, [x, y], 3.0)).backward()
    assert x.grad.tolist() == [3, 3] and y.grad.tolist() == [3, 3, 3]
