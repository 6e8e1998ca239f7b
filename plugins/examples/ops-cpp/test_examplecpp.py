"""Tests of the plugin, wherever it is installed: pytest test_examplecpp.py"""

import tenon as tn


def test_values() -> None:
    a, b = tn.tensor([[0.0], [10.0]]), tn.tensor([1.0, 2.0, 4.0])
    want = [[0.25, 0.5, 1.0], [7.75, 8.0, 8.5]]
    assert tn.ops.examplecpp.mix(a, b, 0.25).tolist() == want
    half = tn.ops.examplecpp.mix(a.half(), b.half(), weight=0.25)
    assert half.dtype == tn.float16 and half.tolist() == want


def test_gradients() -> None:
    a = tn.linspace(-1, 1, 3, dtype=tn.float64).reshape(3, 1).requires_grad_()
    b = tn.linspace(0, 2, 4, dtype=tn.float64).requires_grad_()
    assert tn.autograd.gradcheck(tn.ops.examplecpp.mix, (a, b, 0.3))
    assert tn.autograd.gradgradcheck(tn.ops.examplecpp.mix, (a, b, 0.3))
