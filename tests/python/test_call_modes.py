"""TorchFunctionMode and TorchDispatchMode: what they see, and what they may change."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
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
        "aten.zeros.default", "aten.mm.default", "aten.neg.default", "aten.relu.default",
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


def called(lib: Any, text: str, **names: Any) -> str:
    """The functions that a mode sees while the text is computed."""
    seen: list[str] = []

    class Seen(lib.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Seen():
        eval(text, names)
    return f"{text}: {' '.join(seen)}"


def test_modes_see_members_as_pytorchs_do() -> None:
    """Attributes of tensors, and methods that are no operators."""

    def look(lib: Any) -> list[str]:
        said = []
        for text in MEMBERS.replace("\n", "|").split("|"):
            x, w = lib.ones(2, 2)[0], lib.nn.Parameter(lib.ones(2))
            said.append(called(lib, text.strip(), t=lib, x=x, w=w))
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


# What a dispatch mode sees, of x (2, 3), w (3, 3), b and v (3),
# y (2, 3, 3), im (1, 2, 4, 4), k (2, 2, 3, 3), i (2), q (1, 2, 3, 4).
SEEN = """x + 1 | 1 - x | 2 ** x | x // 2 | x % 2 | x @ w.t() | F.linear(x, w, b)
    F.linear(y, w, b) | t.matmul(v, v) | x[0] | x[1:, ::2] | x[:, None] | x[:, 1] | x[x > 0]
    x[..., 1] | x[t.tensor([0, 1])] | x.to(t.float64) | x.to(t.float32) | x.double()
    x.contiguous() | x.t().contiguous() | x.reshape(-1) | x.T | x.expand_as(x) | x.split(1)
    x.split([1, 1]) | x.norm() | x.max(1) | x.max(x) | x.median(1) | F.gelu(x)
    F.softmax(x, -1) | F.relu6(x) | F.layer_norm(x, (3,)) | F.conv2d(im, k)
    F.conv_transpose2d(im, k) | F.max_pool2d(im, 2) | F.avg_pool2d(im, 2)
    F.adaptive_avg_pool2d(im, 2) | F.interpolate(im, scale_factor=2) | F.cross_entropy(x, i)
    F.nll_loss(x, i) | F.mse_loss(x, x) | F.logsigmoid(x)
    F.scaled_dot_product_attention(q, q, q) | x.masked_fill(x > 0, 1.0) | x.lerp(x, 0.5)
    x.sum().item() | float(x.sum()) | t.tensor([1.0]) | t.as_tensor([1.0]) | t.empty(2)
    t.arange(0, 3, 1.0) | t.randint(0, 3, (2,)) | x.fill_(1) | x.copy_(x + 0) | x.add_(x)
    x.index_put_((i,), v) | x.scatter(1, i[:, None], 1.0)
    F.grid_sample(im, t.zeros(1, 2, 2, 2)) | t.var_mean(x) | t.searchsorted(v, v) | x.fmod(2)
    t.where(x > 0, x, -x) | x.detach()"""


def seen_by(lib: Any) -> list[str]:
    calls: list[str] = []

    class Seen(lib.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            calls.append(str(func).removeprefix("aten."))
            return func(*args, **(kwargs or {}))

    said = []
    for text in SEEN.replace("\n", "|").split("|"):
        lib.manual_seed(0)
        sizes = {"x": (2, 3), "w": (3, 3), "b": (3,), "v": (3,), "y": (2, 3, 3),
                 "im": (1, 2, 4, 4), "k": (2, 2, 3, 3), "q": (1, 2, 3, 4)}  # fmt: skip
        given = {name: lib.randn(size) for name, size in sizes.items()}
        calls.clear()
        names = {"t": lib, "F": lib.nn.functional, "i": lib.tensor([0, 1]), **given}
        with Seen():
            eval(text.strip(), names)
        said.append(f"{text.strip()}: {' '.join(calls)}")
    return said


def test_dispatch_modes_see_what_pytorchs_do() -> None:
    stored.same(seen_by(tn), stored.of_torch(seen_by))


LAYERS: dict[str, Any] = {
    "linear": lambda: (tn.nn.Sequential(tn.nn.Linear(3, 4), tn.nn.ELU(), tn.nn.Linear(4, 1)),
                       2, 3),
    "conv": lambda: (tn.nn.Sequential(tn.nn.Conv2d(2, 3, 3), tn.nn.BatchNorm2d(3), tn.nn.ReLU(),
                                      tn.nn.ConvTranspose2d(3, 2, 3, 2, groups=1)), 1, 2, 5, 5),
    "pools": lambda: (tn.nn.Sequential(tn.nn.MaxPool2d(2), tn.nn.Upsample(scale_factor=2),
                                       tn.nn.AvgPool2d(2), tn.nn.GroupNorm(1, 2)), 1, 2, 8, 8),
    "transformer": lambda: (tn.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, 3, 4),
    "lstm": lambda: (tn.nn.LSTM(3, 2, batch_first=True), 1, 4, 3),
    "norms": lambda: (tn.nn.Sequential(tn.nn.LayerNorm(3), tn.nn.RMSNorm(3), tn.nn.LogSigmoid(),
                                       tn.nn.Softplus(), tn.nn.LogSoftmax(-1)), 2, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_seen_computes_and_is_recorded_as_ever(name: str) -> None:
    def run(mode: Any) -> list[tn.Tensor]:
        tn.manual_seed(0)
        layer, *size = LAYERS[name]()
        x = tn.randn(*size).requires_grad_()
        with mode:
            y = layer(x)
            y = (y[0] if isinstance(y, tuple) else y) * 1
            y[..., 0].mul_(x.sum())
            y.square().sum().backward()
        return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]

    ops = Ops()
    for got, want in zip(run(ops), run(tn.enable_grad()), strict=True):
        tn.testing.assert_close(got, want)
    assert any("backward" in call or "mm" in call for call in ops.calls)


def test_modes_keep_generators_and_views() -> None:
    want = tn.randn(3, generator=tn.Generator().manual_seed(5))
    x = tn.zeros(2, 2)
    with Ops(), Ops() as ops:
        got = tn.randn(3, generator=tn.Generator().manual_seed(5))
        row = x[0]
        row.fill_(1)
    assert tn.equal(got, want) and x.tolist() == [[1, 1], [0, 0]] and row._base is x
    assert ops.calls == ["aten.randn.generator", "aten.select.int", "aten.fill_.Scalar"]


WHOLE = """t.tensor([1]) | t.as_tensor([1]) | t.asarray([1]) | t.promote_types(t.int32, t.float32)
    t.result_type(x, 1) | t.can_cast(t.int32, t.float32) | t.scalar_tensor(1.0) | t.vander(x)
    t.block_diag(x) | t.from_numpy(n) | t.unique(x) | t.broadcast_shapes((1,), (2,))"""


def test_function_modes_see_what_makes_tensors_and_functions_whole() -> None:
    def look(lib: Any) -> list[str]:
        said = []
        for text in WHOLE.replace("\n", "|").split("|"):
            said.append(called(lib, text.strip(), t=lib, x=lib.ones(2), n=np.ones(2)))
        return said

    stored.same(look(tn), stored.of_torch(look))


def test_tensors_of_one_element_are_numbers_where_no_gradient_goes_through_them() -> None:
    def run(lib: Any) -> list[Any]:
        x, y = lib.tensor([1.0, 2.0]), lib.tensor([10.0, 20.0])
        two = lib.tensor(2.0)
        found = [
            lib.add(x, y, alpha=two), lib.sub(x, y, alpha=lib.tensor(2)),
            lib.addcmul(x, y, y, value=two), lib.clamp(x, max=lib.tensor(1.5)),
            lib.lerp(x, y, two / 4),
        ]  # fmt: skip
        for number in (lib.ones((), device="meta"), lib.ones(1), lib.ones(2), lib.ones(0)):
            try:
                lib.add(x, y, alpha=number)
                found.append("taken")
            except (RuntimeError, TypeError):
                found.append("refused")
        return found

    stored.same(run(tn), stored.of_torch(run))


def test_modes_of_inference_nest_and_decorate() -> None:
    def run(lib: Any) -> list[Any]:
        seen = []

        def note() -> None:
            x = lib.ones(1)
            seen.append((lib.is_inference_mode_enabled(), lib.is_grad_enabled(), x.is_inference()))

        with lib.inference_mode():
            note()
            with lib.inference_mode(False):
                note()
                with lib.no_grad(), lib.inference_mode(mode=True):
                    note()
            note()
        note()
        lib.inference_mode()(note)()
        lib.inference_mode(False)(note)()
        lib.inference_mode(note)()
        with lib.no_grad():
            lib.inference_mode(False)(note)()
        return [int(v) for row in seen for v in row]

    stored.same(run(tn), stored.of_torch(run))
