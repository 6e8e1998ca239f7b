"""Classes with __torch_dispatch__: which operators they see, and that gradients go through them."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.nn import functional as F
from tenon.utils._python_dispatch import TorchDispatchMode, transform_subclass
from tenon.utils._pytree import tree_map

Tensor = tn.Tensor
LOG: list[str] = []


class Logged(Tensor):
    """Holds one tensor, and computes with it."""

    elem: Tensor
    __torch_function__ = tn._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type, elem: Tensor, requires_grad: bool = False) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, layout=elem.layout,
            device=elem.device, requires_grad=requires_grad,
        )  # fmt: skip
        made.elem = elem
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Logged({self.elem})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["elem"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Logged(inner["elem"])

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        LOG.append(str(func).removeprefix("aten."))

        def unwrap(x: Any) -> Any:
            return x.elem if isinstance(x, Logged) else x

        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda x: Logged(x) if isinstance(x, Tensor) else x, result)


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.clear()


A = tn.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
B = tn.tensor([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]])
W = tn.tensor([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]])
BIAS = tn.tensor([0.5, -0.5])
IMAGE = tn.arange(18.0).reshape(1, 2, 3, 3) / 7

# A function of (a, b), and the operators that PyTorch gives to a class in its forward pass.
CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (lambda a, b: a + b, "add.Tensor"),
    "number": (lambda a, b: 1 - a * 2, "mul.Tensor rsub.Scalar"),
    "plain": (lambda a, b: B * a, "mul.Tensor"),
    "linear": (lambda a, b: F.linear(a, b, BIAS), "t.default addmm.default"),
    "matmul": (lambda a, b: a @ b.t(), "t.default mm.default"),
    "relu": (lambda a, b: tn.relu(a), "relu.default"),
    "sigmoid": (lambda a, b: a.sigmoid() * b.tanh(), "sigmoid.default tanh.default mul.Tensor"),
    "softmax": (lambda a, b: a.softmax(-1) * b, "_softmax.default mul.Tensor"),
    "log_softmax": (lambda a, b: a.log_softmax(-1) * b, "_log_softmax.default mul.Tensor"),
    "gelu": (lambda a, b: F.gelu(a), "gelu.default"),
    "square": (lambda a, b: a.square(), "pow.Tensor_Scalar"),
    "views": (lambda a, b: a.view(3, 2)[1] * 2, "view.default select.int mul.Tensor"),
    "slices": (lambda a, b: a[1:, ::2] * 3, "slice.Tensor slice.Tensor mul.Tensor"),
    "transposed": (lambda a, b: a.transpose(0, 1) * b.t(),
                   "transpose.int t.default mul.Tensor"),
    "cat": (lambda a, b: tn.cat([a, b]) * tn.cat([b, a]), "cat.default cat.default mul.Tensor"),
    "mean": (lambda a, b: a.mean(0), "mean.dim"),
    "max": (lambda a, b: a.max(1).values, "max.dim"),
    "var": (lambda a, b: a.var(1), "var.correction"),
    "where": (lambda a, b: tn.where(a > 0, a, b), "gt.Scalar where.self"),
    "norm": (lambda a, b: F.layer_norm(a, (3,)) * b, "native_layer_norm.default mul.Tensor"),
    "in place": (lambda a, b: (a * 1).mul_(3), "mul.Tensor mul_.Tensor"),
    "clone": (lambda a, b: a.clone() * b, "clone.default mul.Tensor"),
    "dtype": (lambda a, b: a.double() * 2, "_to_copy.default mul.Tensor"),
    "embedding": (lambda a, b: F.embedding(tn.tensor([1, 1, 0]), a), "embedding.default"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operators_and_gradients(name: str) -> None:
    function, seen = CALLS[name]
    plain = [A.clone().requires_grad_(), B.clone().requires_grad_()]
    want = function(*plain)
    grads = tn.autograd.grad(want.sum(), plain, allow_unused=True)
    ours = [Logged(A.clone(), True), Logged(B.clone(), True)]
    got = function(*ours)
    assert " ".join(LOG) == seen
    assert type(got) is Logged and got.requires_grad and got.shape == want.shape
    assert tn.equal(got.elem, want)
    got.sum().backward()
    for x, g in zip(ours, grads, strict=True):
        assert (x.grad is None) == (g is None)
        if g is not None:
            assert type(x.grad) is Logged
            tn.testing.assert_close(x.grad.elem, g)


def test_convolution_and_loss() -> None:
    weight = tn.ones(1, 2, 2, 2)
    x, w = Logged(IMAGE.clone(), True), Logged(weight.clone(), True)
    F.cross_entropy(F.conv2d(x, w).flatten(1), tn.tensor([2])).backward()
    assert LOG[0] == "convolution.default"
    a, b = IMAGE.clone().requires_grad_(), weight.clone().requires_grad_()
    F.cross_entropy(F.conv2d(a, b).flatten(1), tn.tensor([2])).backward()
    for ours, theirs in ((x, a), (w, b)):
        assert ours.grad is not None and theirs.grad is not None
        tn.testing.assert_close(ours.grad.elem, theirs.grad)


def test_statistics_of_a_norm() -> None:
    norm = nn.BatchNorm1d(3)
    want = nn.BatchNorm1d(3)
    want(A)
    norm.running_mean, norm.running_var = Logged(tn.zeros(3)), Logged(tn.ones(3))
    y = norm(Logged(A))
    assert y.elem.allclose(nn.functional.batch_norm(A, None, None, training=True), atol=1e-5)
    assert norm.running_mean.elem.equal(want.running_mean)
    assert norm.running_var.elem.equal(want.running_var)


def test_second_derivatives() -> None:
    x = Logged(A.clone(), True)
    (first,) = tn.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), x)
    tn.testing.assert_close(second.elem, 6 * A)


def test_facts() -> None:
    x = Logged(A.t())
    assert x.stride() == (1, 3) and not x.is_contiguous() and Logged(A).is_contiguous()
    assert x.layout is tn.strided and x.dtype is tn.float32 and str(x.device) == "cpu"
    assert x.nbytes == 24 and x.detach().stride() == (1, 3)
    assert Logged(tn.tensor(3.5)).item() == 3.5 and bool(Logged(tn.tensor(True)))
    assert LOG[-1] == "_local_scalar_dense.default"
    for ask in (x.numpy, x.tolist, x.data_ptr):
        with pytest.raises((RuntimeError, TypeError), match="wrapped"):
            ask()
    with pytest.raises(RuntimeError, match="out="):
        tn.add(x, x, out=tn.zeros(3, 2))
    half = transform_subclass(x, lambda name, t: t * 0.5)
    assert type(half) is Logged and tn.equal(half.elem, A.t() * 0.5)


@pytest.mark.parametrize("maker", [
    lambda p: tn.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    lambda p: tn.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.25, maximize=True),
    lambda p: tn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: tn.optim.SGD(p, lr=tn.tensor(0.1)),
    lambda p: tn.optim.Adam(p, lr=tn.tensor(0.1), maximize=True),
    lambda p: tn.optim.Adam(p, lr=0.1, weight_decay=0.01, amsgrad=True),
    lambda p: tn.optim.AdamW(p, lr=0.1, betas=(0.5, 0.75), eps=0.01, weight_decay=0.25),
])  # fmt: skip
def test_parameters_are_trained(maker: Any) -> None:
    def train(layer: Any) -> list[float]:
        optimizer, losses = maker(layer.parameters()), []
        for _ in range(3):
            loss = F.relu(layer(A)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = tn.nn.Linear(3, 2)
    layer = copy.deepcopy(plain)
    layer.weight = tn.nn.Parameter(Logged(layer.weight.data))
    assert isinstance(layer.weight, tn.nn.Parameter) and type(layer.weight) is Logged
    assert train(layer) == pytest.approx(train(plain))


class Scaled(Tensor):
    """A weight of int8, as packages that quantize make them: few operators, and no others."""

    numbers: Tensor
    scale: Tensor
    __torch_function__ = tn._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type, numbers: Tensor, scale: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)
        made.numbers, made.scale = numbers, scale
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        aten = tn.ops.aten
        if func is aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        if func is aten.t.default:
            return cls(args[0].numbers.t(), args[0].scale.t())
        if func in (aten.addmm.default, aten.mm.default):
            *bias, x, w = args
            if isinstance(w, Scaled):
                return func(*bias, x, w.numbers.to(x.dtype) * w.scale)
        return NotImplemented


def test_quantized_weight() -> None:
    scale = W.abs().amax(1, keepdim=True) / 127
    numbers = (W / scale).round().to(tn.int8)
    layer = tn.nn.Linear(3, 2)
    want = F.linear(A, numbers * scale, layer.bias)
    layer.weight = tn.nn.Parameter(Scaled(numbers, scale), requires_grad=False)
    assert tn.equal(layer(A), want) and type(layer(A)) is Tensor
    with pytest.raises(TypeError, match=r"aten.exp.default.*NotImplemented"):
        layer.weight.exp()


def test_subclasses_are_asked_first_and_modes_before_them() -> None:
    class Twice(Logged):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:  # fmt: skip
            LOG.append("twice")
            return super().__torch_dispatch__(func, types, args, kwargs)

    assert tn.equal((Logged(A) + Twice(B)).elem, A + B)
    assert LOG == ["twice", "add.Tensor"]

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:  # fmt: skip
            LOG.append("mode")
            return func(*args, **(kwargs or {}))

    LOG.clear()
    with Mode():
        Logged(A) + 1
    assert LOG == ["mode", "add.Tensor"]


def test_errors_and_what_is_no_tensor() -> None:
    class Wrong(Logged):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:  # fmt: skip
            if func is tn.ops.aten.exp.default:
                raise KeyError("mine")
            return 3

    with pytest.raises(KeyError, match="mine"):
        Wrong(A).exp()
    with pytest.raises(TypeError, match="returned is int"):
        Wrong(A).sin()
    with pytest.raises(TypeError, match="__torch_dispatch__"):
        Tensor._make_wrapper_subclass(Tensor, (2,))


class Slotted(Logged):
    """Names what it holds."""

    __slots__ = ("more", "__own")

    def count(self) -> int:
        self.__own = getattr(self, "_Slotted__own", 0) + 1
        return self.__own


def test_classes_of_tensors_may_name_slots() -> None:
    x = Slotted(A)
    with pytest.raises(AttributeError):
        x.more  # noqa: B018
    x.more = 3
    assert (x.more, x.count(), x.count()) == (3, 1, 2)
    assert Slotted.__slots__ == ("more", "__own") and type(Slotted) is type(Tensor)

    class Memory(Tensor):
        __slots__ = ["note"]

    y = tn.ones(2).as_subclass(Memory)
    y.note = "kept"
    assert (y + 1).tolist() == [2.0, 2.0] and y.note == "kept" and y.clone().sum() == 2
    here = weakref.ref(Memory)
    del y, Memory
    gc.collect()
    assert here() is None


def test_what_it_holds_is_let_go() -> None:
    inner = A.clone()
    alive = weakref.ref(inner)
    x = Logged(inner, True)
    y = (x * x).exp()
    del inner, x
    assert alive() is not None  # the tape reads it
    y.sum().backward()
    del y
    gc.collect()
    assert alive() is None
