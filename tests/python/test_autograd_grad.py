"""autograd.grad and autograd.backward: what they are given besides plain tensors, and who is asked
before they run."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import tenon as tn
from tenon.masked import masked_tensor
from tenon.overrides import TorchFunctionMode


def leaf(*values: float) -> tn.Tensor:
    return tn.tensor(values, dtype=tn.float32, requires_grad=True)


def test_gradients_of_a_dict_are_a_dict() -> None:
    w, v = leaf(1, 2), leaf(3)
    found = tn.autograd.grad((w * w).sum(), {"w": w, "v": v}, allow_unused=True)
    assert found["w"].tolist() == [2, 4] and found["v"] is None and list(found) == ["w", "v"]
    layer = tn.nn.Linear(2, 1)
    named = dict(layer.named_parameters())
    assert set(tn.autograd.grad(layer(tn.ones(1, 2)).sum(), named)) == {"weight", "bias"}
    with pytest.raises(TypeError, match="must be a dict, not OrderedDict"):
        tn.autograd.grad((w * w).sum(), OrderedDict(w=w))


class Seen(tn.Tensor):
    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_classes_of_programs_are_asked() -> None:
    x = tn.ones(2).as_subclass(Seen).requires_grad_()
    y, z = (x * 2).sum(), (x * 3).sum()
    Seen.calls.clear()
    (found,) = tn.autograd.grad(y, x)
    assert type(found) is Seen and Seen.calls[0] == "grad"
    tn.autograd.backward(z, inputs=[x])
    assert "backward" in Seen.calls
    assert tn.as_tensor(x.grad).tolist() == [3, 3] and found.tolist() == [2, 2]


def test_modes_see_the_calls() -> None:
    class Mode(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            self.calls.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = leaf(1, 2)
    y, z = (x * x).sum(), (x * x).sum()
    with Mode() as mode:
        (found,) = tn.autograd.grad(y, x)
        tn.autograd.backward(z)
    assert mode.calls == ["grad", "backward"]
    assert found.tolist() == x.grad.tolist() == [2, 4]


# ---- Tensors that are made of others -------------------------------------------------------------


def masked(requires_grad: bool = True) -> Any:
    data, mask = tn.tensor([1.0, 2.0, 3.0]), tn.tensor([True, False, True])
    return masked_tensor(data, mask, requires_grad)


def test_gradients_of_masked_tensors() -> None:
    a, w = masked(), leaf(1, 1, 1)
    found, plain = tn.autograd.grad((a * a).sum(), [a, w], allow_unused=True)
    assert found.to_tensor(-1).tolist() == [2, -1, 6] and plain is None
    (found,) = tn.autograd.grad(a * a, a, tn.tensor([1.0, 5.0, 2.0]))
    assert found.to_tensor(-1).tolist() == [2, -1, 12]
    (found,) = tn.autograd.grad(a * a, a, masked(False))
    assert found.to_tensor(-1).tolist() == [2, -1, 18]
    tn.autograd.backward((a * a).sum())
    tn.autograd.backward((a * a).sum(), inputs=[a])
    assert a.grad.to_tensor(-1).tolist() == [4, -1, 12]
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        tn.autograd.grad((w * w).sum(), a)
    (zero,) = tn.autograd.grad((w * w).sum(), a, materialize_grads=True)
    assert zero.to_tensor(-1).tolist() == [0, -1, 0]
    (first,) = tn.autograd.grad((a * a * a).sum(), a, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), a)
    assert second.to_tensor(-1).tolist() == [6, -1, 18]


def test_hooks_of_masked_tensors() -> None:
    a, seen = masked(), []
    y = a * 2
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g))
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    assert seen[0].to_tensor(-1).tolist() == [1, -1, 1]
    assert a.grad.to_tensor(-1).tolist() == [6, -1, 6]
    assert y.grad.to_tensor(-1).tolist() == [3, -1, 3]


@pytest.mark.parametrize("layout", [tn.strided, tn.jagged])
def test_gradients_of_nested_tensors(layout: Any) -> None:
    parts = [tn.arange(2.0), tn.arange(3.0)]
    t = tn.nested.nested_tensor(parts, layout=layout, requires_grad=True)

    def total() -> tn.Tensor:
        return tn.cat([(p * p).sum().reshape(1) for p in t.unbind()]).sum()

    (found,) = tn.autograd.grad(total(), t)
    assert [g.tolist() for g in found.unbind()] == [[0, 2], [0, 2, 4]] and found.layout is layout
    (found,) = tn.autograd.grad(t * t, t, t.detach())
    assert [g.tolist() for g in found.unbind()] == [[0, 2], [0, 2, 8]]
    # One of the components has no part in it.
    (found,) = tn.autograd.grad(t.unbind()[1].sum(), t)
    assert [g.tolist() for g in found.unbind()] == [[0, 0], [1, 1, 1]]
    tn.autograd.backward(t * t, t.detach())
    assert [g.tolist() for g in t.grad.unbind()] == [[0, 2], [0, 2, 8]]
    assert [p.tolist() for p in (t + t.grad).unbind()] == [[0, 3], [0, 3, 10]]
    with pytest.raises(RuntimeError, match="a tensor of 2 components needs a gradient of as many"):
        tn.autograd.grad(t * t, t, tn.ones(2))


def test_they_are_formatted_as_they_are_shown() -> None:
    for t in (tn.nested.nested_tensor([tn.ones(1), tn.ones(2)]), masked(False)):
        assert f"{t}" == str(t)
        with pytest.raises(TypeError, match="unsupported format string"):
            format(t, ">10")
