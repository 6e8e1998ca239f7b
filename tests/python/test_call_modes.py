"""TorchFunctionMode and TorchDispatchMode: what they see, and what they may change."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import stored
import tenon as tn
from tenon.overrides import BaseTorchFunctionMode, TorchFunctionMode
from tenon.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode


class Log(TorchFunctionMode):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def work(x: tn.Tensor) -> tn.Tensor:
    y = 2 - (x + 1) * x
    y += 1
    y = y @ tn.zeros(2, 2) + tn.nn.functional.relu(-x)
    return y.sum(0) > 1


def test_what_modes_see() -> None:
    x = tn.tensor([[1.0, -2.0], [0.5, 3.0]])
    want = work(x)
    with Log() as log:
        assert tn.equal(work(x), want)
        tn.nn.init.zeros_(tn.ones(2))
        x[0]
    names = ["add", "mul", "__rsub__", "add_", "zeros", "matmul", "neg", "relu", "add", "sum"]
    assert log.calls[:10] == names and log.calls[10] == "__gt__"
    assert "zeros_" in log.calls and log.calls[-1] == "__getitem__"
    with Ops() as ops:
        assert _get_current_dispatch_mode() is ops
        got = work(x)
    assert tn.equal(got, want)
    assert ops.calls == [
        "aten.add.Tensor", "aten.mul.Tensor", "aten.rsub.Scalar", "aten.add_.Tensor",
        "aten.zeros.default", "aten.matmul.default", "aten.neg.default", "aten.relu.default",
        "aten.add.Tensor", "aten.sum.dim_IntList", "aten.gt.Scalar",
    ]  # fmt: skip
    seen = len(log.calls), len(ops.calls)
    work(x)
    assert seen == (len(log.calls), len(ops.calls)) and _get_current_dispatch_mode() is None


def test_modes_change_results_from_the_inside_out() -> None:
    class Plus(TorchFunctionMode):
        def __init__(self, more: int) -> None:
            self.more = more

        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 10 + self.more if func is tn.Tensor.add else result

    x = tn.ones(1)
    with Plus(1), Plus(2), BaseTorchFunctionMode():
        assert (x + 0).item() == 1121  # the outer mode sees the inner one's sum too: 11, 110 + 2
    with pytest.raises(TypeError, match=r"returned NotImplemented for \w+\.Tensor\.add"):

        class Refuse(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return NotImplemented

        with Refuse():
            x + 1
    assert (x + 0).item() == 1


def test_subclasses_come_after_function_modes_and_before_dispatch_modes() -> None:
    order: list[str] = []

    class Sub(tn.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append("class")
            return super().__torch_function__(func, types, args, kwargs)

    class One(Log):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append("mode")
            assert types == (Sub,)
            return func(*args, **(kwargs or {}))

    class Two(Ops):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            order.append("dispatch")
            return func(*args, **(kwargs or {}))

    x = tn.ones(2).as_subclass(Sub)
    with Two(), One():
        assert type(x * 2) is Sub
    assert order == ["mode", "class", "dispatch"]


def test_a_mode_is_of_its_thread() -> None:
    x, other = tn.ones(2), []
    with Log() as log:
        thread = threading.Thread(target=lambda: other.append((x + x) * 2))
        thread.start()
        thread.join()
        assert log.calls == [] and other[0].tolist() == [4, 4]
        with pytest.raises(ZeroDivisionError), Log():
            1 / 0  # noqa: B018
        x * 2
    assert log.calls == ["tolist", "mul"] and x.add(1).tolist() == [2, 2]


def test_operators_by_their_names_in_the_library() -> None:
    x = tn.tensor([1.0, -2.0])
    aten = tn.ops.aten
    assert aten.add.Tensor(x, 1).tolist() == [2, -1] and aten.relu(x).tolist() == [1, 0]
    assert aten.add_.Tensor(x.clone(), 1).tolist() == [2, -1]
    assert aten.sum.dim_IntList(x.view(1, 2), [1]).tolist() == [-1]
    assert str(aten.mm.default) == "aten.mm.default" and aten.mm.default.name() == "aten::mm"
    assert aten.add.Tensor is aten.add.Tensor and aten.add.Tensor.overloadpacket is aten.add
    assert aten.add.Scalar.name() == "aten::add.Scalar" and "default" in aten.add.overloads()
    assert aten.alias.default(x).data_ptr() == x.data_ptr()
    assert aten._to_copy.default(x, dtype=tn.int64).tolist() == [1, -2]
    assert aten.slice.Tensor(tn.arange(6), 0, 1, 5, 2).tolist() == [1, 3]
    assert aten.index.Tensor(tn.eye(3), [None, tn.tensor([1])]).tolist() == [[0], [1], [0]]
    with pytest.raises(AttributeError, match="no overload name 'Tenser'"):
        _ = aten.add.Tenser
    with pytest.raises(AttributeError, match="there is no operator 'aten::softma'"):
        _ = aten.softma


MEMBERS = """x.cpu() | x.double() | x.float() | x.shape | x.dtype | x.device | x.grad
    x.data | x.is_leaf | x.dim() | x.size() | x.size(0) | x.stride() | x.numel()
    x.element_size() | x.storage_offset() | x.is_contiguous() | x.tolist() | x.numpy()
    x[0].item() | bool(x[0]) | float(x[0]) | int(x[0]) | len(x) | x.requires_grad_(False)
    t.is_complex(x) | t.numel(x) | x.is_floating_point() | x.requires_grad | x.ndim
    x.is_sparse | x.layout | x.real | x.to(t.float64) | w.shape | w.to(t.float64) | w.grad
    w + 1 | (x + 1).dtype
    x.T.shape"""


def test_modes_see_members_as_pytorchs_do() -> None:
    """Attributes of tensors, and methods that are no operators."""

    def look(lib: Any) -> list[str]:
        class Seen(lib.overrides.TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen.append(func.__name__)
                return func(*args, **(kwargs or {}))

        said = []
        for text in MEMBERS.replace("\n", "|").split("|"):
            x, w = lib.ones(2, 2)[0], lib.nn.Parameter(lib.ones(2))
            seen: list[str] = []
            with Seen():
                eval(text.strip(), {"t": lib, "x": x, "w": w})
            said.append(f"{text.strip()}: {' '.join(seen)}")
        return said

    stored.same(look(tn), stored.of_torch(look))


def test_members_are_tensors_own_again() -> None:
    before = {name: vars(tn.Tensor).get(name) for name in ("shape", "to", "__len__", "item", "T")}

    seen: list[str] = []

    def made() -> type:
        class Sub(tn.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        return Sub

    kinds = [made()]
    with Log(), Log():
        assert vars(tn.Tensor)["shape"] is not before["shape"]
        kinds.append(made())
    assert {name: vars(tn.Tensor).get(name) for name in before} == before
    for kind in (*kinds, made()):
        seen.clear()
        assert tn.ones(2).as_subclass(kind).shape == (2,) and seen == ["__get__"]
    with Log() as log:
        found: list[Any] = []
        other = threading.Thread(target=lambda: found.append(tn.ones(3).shape))
        other.start()
        other.join()
    assert found == [(3,)] and log.calls == []
