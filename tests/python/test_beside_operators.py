"""Names of PyTorch that stand beside its operators: what they compute, by PyTorch 2.13's answers,
and what the settings do."""

from __future__ import annotations

import subprocess
import sys
import typing
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn


def test_cross_map_lrn() -> None:
    x = tn.arange(1.0, 9).view(1, 4, 1, 2)
    found = nn.CrossMapLRN2d(3, alpha=0.5, beta=0.6, k=2)(x)
    want = [0.4586, 0.73254, 0.87248, 0.93206, 0.94732, 0.93907, 1.40695, 1.35303]
    assert found.flatten().tolist() == pytest.approx(want, abs=1e-5)
    want = [0.999813, 1.99925, 2.998033, 3.995805, 4.992139, 5.986535, 6.990172, 7.984436]
    assert nn.CrossMapLRN2d(4)(x).flatten().tolist() == pytest.approx(want, abs=1e-5)
    assert tn.autograd.gradcheck(
        nn.CrossMapLRN2d(3), [tn.rand(1, 3, 2, 2, dtype=tn.float64).requires_grad_()]
    )
    with pytest.raises(ValueError, match="Expected input to be 4D, got 3D"):
        nn.CrossMapLRN2d(3)(tn.ones(1, 2, 3))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims: int) -> None:
    x = tn.randn(2, 4, *[7] * dims).requires_grad_()
    w = tn.randn(6, 2, *[3] * dims).requires_grad_()
    options: dict[str, Any] = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    out = getattr(nn.functional, f"conv{dims}d")(x, w, None, *options.values())
    g = tn.randn_like(out)
    by_x, by_w = tn.autograd.grad(out, (x, w), g)
    grads = tn.nn.grad
    assert getattr(grads, f"conv{dims}d_input")(x.shape, w, g, **options).equal(by_x)
    assert getattr(grads, f"conv{dims}d_weight")(x, w.shape, g, **options).equal(by_w)
    with pytest.raises(ValueError, match="requires specifying an input_size"):
        getattr(grads, f"conv{dims}d_input")(None, w, g)


@pytest.mark.parametrize("transposed", [False, True])
def test_one_convolution(transposed: bool) -> None:
    x, w, b = tn.randn(2, 4, 5, 5), tn.randn(4, 3, 3, 3), tn.randn(3 if transposed else 4)
    if not transposed:
        x = x[:, :3]
    settings = ([2, 1], [1, 0], [1, 1], transposed, [1, 0] if transposed else [0, 0], 1)
    out = tn.convolution(x, w, b, *settings)
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    if transposed:
        want = nn.functional.conv_transpose2d(*leaves, (2, 1), (1, 0), (1, 0))
    else:
        want = nn.functional.conv2d(*leaves, (2, 1), (1, 0))
    assert out.equal(want)
    g = tn.randn_like(out)
    found = tn.ops.aten.convolution_backward(g, x, w, [3], *settings, [True, True, True])
    for a, b in zip(found, tn.autograd.grad(want, leaves, g), strict=True):
        assert tn.allclose(a, b, atol=1e-5)
    assert tn.ops.aten.convolution_backward(g, x, w, None, *settings, [False] * 3) == (None,) * 3


def test_bags_with_their_facts() -> None:
    table, indices, starts = tn.eye(5)[:, :3], tn.tensor([1, 2, 4, 3]), tn.tensor([0, 2, 2])
    rows = [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    found = tn.embedding_bag(table, indices, starts, False, 0)
    assert [t.tolist() for t in found] == [rows, [], [0, 0, 0], [0, 0, 0]]
    found = tn.embedding_bag(table, indices, starts, mode=1)
    assert found[0].tolist() == [[0, 0.5, 0.5], [0, 0, 0], [0, 0, 0]]
    assert [t.tolist() for t in found[1:]] == [[0, 0, 2, 2], [2, 0, 2], [2, 0, 2]]
    found = tn.embedding_bag(table, indices, starts, mode=2)
    assert found[0].tolist() == rows
    assert found[3].tolist() == [[1, 1, 2], [0, 0, 0], [4, 4, 4]]


@pytest.mark.parametrize("dtype", [tn.float64, tn.float16, tn.bfloat16])
@pytest.mark.parametrize("padding_idx", [None, 0, -1])
@pytest.mark.parametrize("starts", [[0, 4], [0, 2, 2], [0, 0, 5]])
def test_of_equal_rows_in_a_bag_the_first_is_the_maximum(dtype, padding_idx, starts) -> None:
    table = [[1.0, 2.0], [1.0, 2.0], [0.0, 3.0], [0.0, 3.0], [2.0, -1.0]]
    index = [3, 1, 2, 0, 1, 4]
    weight = tn.tensor(table, dtype=dtype, requires_grad=True)
    out = tn.nn.functional.embedding_bag(
        tn.tensor(index), weight, tn.tensor(starts), mode="max", padding_idx=padding_idx
    )
    out.sum().backward()
    want, grad = [], np.zeros((5, 2))
    for first, last in zip(starts, [*starts[1:], len(index)], strict=True):
        rows = [i for i in index[first:last] if padding_idx is None or i != padding_idx % 5]
        want.append([max((table[i][k] for i in rows), default=0.0) for k in range(2)])
        for k in range(2) if rows else ():
            grad[max(rows, key=lambda i: table[i][k]), k] += 1
    assert out.tolist() == want
    assert weight.grad.tolist() == grad.tolist()


def test_rows_are_cut_to_a_norm_by_indices_of_32_bits() -> None:
    table = tn.tensor([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]])
    index = tn.tensor([[0, 1]], dtype=tn.int32)
    rows = tn.nn.functional.embedding(index, table, max_norm=1.0)
    np.testing.assert_allclose(rows.numpy(), [[[0.6, 0.8], [0.3, 0.4]]], rtol=1e-6)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [0.3, 0.4], [30.0, 40.0]], rtol=1e-6)
    mean = tn.nn.functional.embedding_bag(index, table, max_norm=1.0)
    np.testing.assert_allclose(mean.numpy(), [[0.45, 0.6]], rtol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (2, 1), (4, 0)])
def test_bags_of_one_length(mode: str, shape: tuple[int, int]) -> None:
    """As the rows of each say; of equal rows the first is the maximum."""
    draw = np.random.default_rng(1)
    table = draw.integers(-2, 3, (6, 4)).astype(np.float64)
    index = draw.integers(0, 6, shape)
    weight = tn.tensor(table, requires_grad=True)
    out = tn.nn.functional.embedding_bag(tn.from_numpy(index), weight, mode=mode)
    rows = table[index]
    if shape[1] == 0:
        want = np.zeros((shape[0], 4))
    else:
        want = {"sum": rows.sum, "mean": rows.mean, "max": rows.max}[mode](1)
    np.testing.assert_allclose(out.detach().numpy(), want, atol=1e-15)
    g = draw.standard_normal(out.shape)
    out.backward(tn.tensor(g))
    grad = np.zeros_like(table)
    for b, k in np.ndindex(*g.shape) if shape[1] else ():
        if mode == "max":
            grad[index[b, rows[b, :, k].argmax()], k] += g[b, k]
        else:
            for i in index[b]:
                grad[i, k] += g[b, k] / (shape[1] if mode == "mean" else 1)
    np.testing.assert_allclose(weight.grad.numpy(), grad, atol=1e-15)
    if mode == "sum" and shape[1]:
        shares = draw.standard_normal(shape)
        out = tn.nn.functional.embedding_bag(
            tn.from_numpy(index), weight, mode=mode, per_sample_weights=tn.tensor(shares)
        )
        want = (rows * shares[..., None]).sum(1)
        np.testing.assert_allclose(out.detach().numpy(), want, atol=1e-13)


def test_facts() -> None:
    x = tn.tensor([1 + 2j])
    assert not x.is_conj() and not tn.is_conj(x.conj()) and not tn.is_neg(x.imag)
    assert tn.resolve_neg(x) is x
    assert tn.is_signed(x) and not tn.is_signed(tn.ones(1, dtype=tn.uint8))
    assert tn.is_same_size(tn.ones(2), tn.zeros(2)) and not tn.ones(2).is_same_size(tn.ones(1, 2))
    with tn.inference_mode():
        assert tn.is_inference(tn.ones(1))
    assert not tn.is_inference(x) and tn.get_device(x) == -1
    assert tn.ones(2).map_(tn.tensor([2.0]), lambda a, b: a + b).tolist() == [3, 3]
    assert tn.ones(2).map2_(tn.arange(2), tn.arange(2), lambda a, b, c: a + b * c).tolist() == [
        1,
        2,
    ]


def test_assertions() -> None:
    tn._assert(tn.tensor(True), "holds")
    with pytest.raises(AssertionError, match="does not hold"):
        tn._assert(1 > 2, "does not hold")


def test_deterministic_levels() -> None:
    try:
        for level, name in enumerate(("default", "warn", "error")):
            tn.set_deterministic_debug_mode(name)
            assert tn.get_deterministic_debug_mode() == level
            tn.set_deterministic_debug_mode(level)
            assert tn.are_deterministic_algorithms_enabled() is (level > 0)
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            tn.set_deterministic_debug_mode(3)
    finally:
        tn.set_deterministic_debug_mode(0)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = (
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
)  # fmt: skip


@pytest.fixture
def deterministic():
    tn.use_deterministic_algorithms(True)
    yield
    tn.use_deterministic_algorithms(False)


def test_what_nobody_sets_is_seen_in_deterministic_programs(deterministic: None) -> None:
    for name in INTEGERS:
        assert tn.empty(3, dtype=getattr(tn, name)).tolist() == [int(np.iinfo(name).max)] * 3
    for name in FLOATS:
        assert tn.empty(3, dtype=getattr(tn, name)).to(tn.float32).isnan().all(), name
    for name in ("complex32", "complex64", "complex128"):
        filled = tn.empty(3, dtype=getattr(tn, name)).to(tn.complex64)
        assert filled.real.isnan().all() and filled.imag.tolist() == [0, 0, 0]
    assert tn.empty(2, dtype=tn.bool).all() and tn.empty(2, device="meta").shape == (2,)
    x = tn.ones(2, 3)
    ways = {
        "like": tn.empty_like(x), "strided": tn.empty_strided((2, 3), (1, 2)),
        "overlapping": tn.empty_strided((2, 3), (0, 1)),
        "permuted": tn.empty_permuted((2, 3), (1, 0)),
        "new": x.new_empty(4), "new strided": x.new_empty_strided((2,), (3,)),
        "out": tn.empty((2,), out=tn.ones(2)), "type": tn.Tensor(2),
        "older type": tn.FloatTensor(2),
        "channels": tn.empty(1, 2, 2, 2, memory_format=tn.channels_last),
    }  # fmt: skip
    assert [name for name, way in ways.items() if not way.isnan().all()] == []
    grown = tn.ones(2).resize_(4)
    assert grown[:2].tolist() == [1, 1] and grown[2:].isnan().all()


def test_the_filling_can_be_left_out(deterministic: None) -> None:
    setting = tn.utils.deterministic
    assert setting.fill_uninitialized_memory is True
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        setting.fill_uninitialized_memory = 1
    setting.fill_uninitialized_memory = False
    try:
        assert setting.fill_uninitialized_memory is False
        held = tn.ones(1000)
        del held  # whose memory the next one gets
        assert not tn.empty(1000).isnan().all()
    finally:
        setting.fill_uninitialized_memory = True
    tn.use_deterministic_algorithms(False)
    held = tn.ones(1000)
    del held
    assert not tn.empty(1000).isnan().all()


@pytest.mark.parametrize(
    ("name", "backend"),
    [("has_cuda", "cuda.is_built"), ("has_cudnn", "cudnn.is_available"),
     ("has_mkldnn", "mkldnn.is_available"), ("has_mps", "mps.is_built")],
)  # fmt: skip
def test_older_names_of_what_is_built_warn(name: str, backend: str) -> None:
    where, _, asked = backend.partition(".")
    with pytest.warns(UserWarning, match=f"'{name}' is deprecated.*backends.{backend}") as said:
        assert getattr(tn, name) is getattr(getattr(tn.backends, where), asked)()
    assert said[0].filename == __file__
    assert (tn.has_lapack, tn.has_mkl, tn.has_openmp, tn.has_spectral) == (True, False, False, True)
    assert not hasattr(tn, "has_nothing")


def test_settings_of_a_gpu_leave_the_environment_of_a_program_as_it_is() -> None:
    program = (
        "import os, subprocess, sys, tenon as tn\n"
        "before = dict(os.environ)\n"
        "tn.backends.cudnn.benchmark = True\n"
        "tn.backends.cuda.matmul.allow_tf32 = True\n"
        "tn.use_deterministic_algorithms(True)\n"
        "print(dict(os.environ) == before, tn.backends.cudnn.benchmark,\n"
        "      tn.backends.cuda.matmul.allow_tf32)\n"
        "import ctypes\n"
        "read = ctypes.CDLL(None).getenv\n"
        "read.restype = ctypes.c_char_p\n"
        "print(read(b'TENON_CUDNN_BENCHMARK'), read(b'TENON_CUDA_TF32'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True True True\nb'1' b'1'\n", done.stderr


def test_modules_without_initialisation() -> None:
    made = nn.utils.skip_init(nn.Linear, 3, 2, dtype=tn.float64)
    assert made.weight.shape == (2, 3) and made.weight.dtype is tn.float64
    assert made.weight.device.type == "cpu"
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        nn.utils.skip_init(nn.ReLU)
    with pytest.raises(RuntimeError, match="Expected a Module"):
        nn.utils.skip_init(dict)


def test_stateless() -> None:
    model, x = nn.Linear(2, 1), tn.ones(1, 2)
    from tenon.nn.utils import stateless

    with pytest.warns(FutureWarning, match=r"func\.functional_call"):
        found = stateless.functional_call(
            model, {"weight": tn.ones(1, 2), "bias": tn.zeros(1)}, (x,)
        )
    assert found.item() == 2


Pair = namedtuple("Pair", "a b")


def test_scattered_arguments() -> None:
    from tenon.nn.parallel import scatter_gather as sg

    x, places = tn.arange(4), ["cpu", "cpu"]
    rows = sg.scatter((x, {"k": [x, 3]}, Pair(x, None)), places)
    assert len(rows) == 2 and rows[1][0].tolist() == [2, 3]
    assert rows[0][1]["k"][0].tolist() == [0, 1] and rows[0][1]["k"][1] == 3
    assert type(rows[1][2]) is Pair and rows[1][2].a.tolist() == [2, 3]
    args, kwargs = sg.scatter_kwargs((x,), {}, places)
    assert [a[0].tolist() for a in args] == [[0, 1], [2, 3]] and kwargs == ({}, {})
    outs = [{"y": Pair(r[0], None)} for r in rows]
    assert sg.gather(outs, "cpu")["y"].a.tolist() == [0, 1, 2, 3]
    assert sg.gather([tn.tensor(1.0), tn.tensor(2.0)], "cpu").tolist() == [1, 2]
    with pytest.raises(ValueError, match="same number of keys"):
        sg.gather([{"a": x}, {}], "cpu")


def test_order_of_products() -> None:
    from tenon.backends import opt_einsum

    a, b, c = tn.randn(2, 3), tn.randn(3, 4), tn.randn(4, 5)
    with opt_einsum.flags(enabled=False):
        assert opt_einsum.enabled is False
        want = tn.einsum("ij,jk,kl->il", a, b, c)
    assert tn.allclose(tn.einsum("ij,jk,kl->il", a, b, c), want, atol=1e-5)
    if opt_einsum.is_available():
        with opt_einsum.flags(enabled=True, strategy="optimal"):
            found = tn.einsum("...ij,jk,kl", a, b, c)
        assert tn.allclose(found, want, atol=1e-5)


def test_modules_as_functions() -> None:
    program = """
import torch
from torch._functorch.apis import chunk_vmap, vmap
from torch._functorch.make_functional import make_functional, make_functional_with_buffers
from torch._functorch.eager_transforms import jacrev
from torch import _VF
model, x = torch.nn.Linear(3, 2), torch.ones(3)
f, params = make_functional(model)
assert f(params, x).equal(model(x))
assert jacrev(f)(params, x)[0].shape == (2, 2, 3)
assert vmap(f, (None, 0))(params, torch.ones(4, 3)).shape == (4, 2)
twice = chunk_vmap(lambda a, b: a * b, (0, None), chunks=3)
assert twice(torch.arange(4), 2).tolist() == [0, 2, 4, 6]
f, params, buffers = make_functional_with_buffers(torch.nn.BatchNorm1d(3), True)
assert not params[0].requires_grad and f(params, buffers, torch.randn(4, 3)).shape == (4, 3)
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second, self.bias = self.first, self.first.bias
        self.factor = torch.nn.Buffer(torch.full((3,), 2.0))
        self.again = self.factor
    def forward(self, x):
        return self.second(self.first(x)) * self.factor * self.again + self.bias
tied = Tied()
f, params, buffers = make_functional_with_buffers(tied)
assert len(params) == 2 and len(buffers) == 1 and f(params, buffers, x).equal(tied(x))
far = f(params, [torch.zeros(3)], x)
assert far.equal(tied.bias)
try:
    make_functional(torch.nn.BatchNorm1d(3))
except RuntimeError as err:
    assert "has buffers" in str(err)
assert _VF.lstm is not None and _VF.relu(-x).sum() == 0
from torch.autograd.grad_mode import set_multithreading_enabled
from torch.autograd.variable import Variable
assert isinstance(x, Variable)
with set_multithreading_enabled(False):
    pass
from torch.nn.common_types import _size_2_t
print("well")
"""
    done = subprocess.run(
        [sys.executable, "-m", "tenon", "run", "-c", program], capture_output=True, text=True
    )
    assert done.stdout == "well\n", done.stderr


def test_the_environment() -> None:
    from tenon.utils import collect_env

    text = collect_env.get_pretty_env_info()
    assert f"Tenon version: {tn.__version__}" in text and sys.version.split()[0] in text
    assert "[pip3] numpy==" in text


def test_signatures_of_modules() -> None:
    import inspect

    assert str(inspect.signature(nn.Linear(2, 1))) == "(*args, **kwargs)"
    assert list(inspect.signature(nn.Linear).parameters)[:3] == [
        "in_features", "out_features", "bias"
    ]  # fmt: skip

    class Own(nn.Module):
        def __call__(self, x: int) -> int:
            return x

    assert list(inspect.signature(Own()).parameters) == ["x"]


def test_layers_of_vgg() -> None:
    from tenon.vision.models import vgg

    layers = vgg.make_layers([4, "M", 8], batch_norm=True)
    assert [type(m).__name__ for m in layers] == [
        "Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d", "Conv2d", "BatchNorm2d", "ReLU"
    ]  # fmt: skip
    assert vgg.cfgs["A"] == [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]


CHECKS = {
    "_check": RuntimeError, "_check_index": IndexError, "_check_value": ValueError,
    "_check_type": TypeError, "_check_not_implemented": NotImplementedError,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_checks_raise_what_they_say(name: str) -> None:
    check, error = getattr(tn, name), CHECKS[name]
    assert check(True) is None and check(True, lambda: 1 / 0) is None
    with pytest.raises(error, match=r"^Expected cond to be True, but got False"):
        check(False)
    with pytest.raises(error, match=r"^5$"):
        check(False, lambda: 5)
    with pytest.raises(TypeError, match="message must be a callable"):
        check(False, "text")
    with pytest.raises(TypeError, match="cond must be a bool, but got <class 'int'>"):
        check(1)
    with pytest.raises(TypeError, match=r"cond must be a bool, but got a Tensor"):
        check(tn.tensor(True))


def test_checks_of_tensors_and_sizes() -> None:
    tn._check_tensor_all(tn.tensor([True, True]))
    tn._check_tensor_all(tn.tensor([], dtype=tn.bool))
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        tn._check_tensor_all(tn.tensor([True, False]))
    with pytest.raises(KeyError, match="k"):
        tn._check_tensor_all_with(KeyError, tn.tensor([False]), lambda: "k")
    with pytest.raises(KeyError, match="k"):
        tn._check_with(KeyError, False, lambda: "k")
    with pytest.raises(TypeError, match="cond must be a tensor, but got <class 'bool'>"):
        tn._check_tensor_all(True)
    with pytest.raises(TypeError, match=r"must have dtype torch.bool, but got \S*float32"):
        tn._check_tensor_all(tn.ones(2))
    with pytest.warns(FutureWarning, match="_check_is_size will be removed"):
        tn._check_is_size(0, max=0)
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="neg"):
        tn._check_is_size(-1, lambda: "neg")
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="Expected cond"):
        tn._check_is_size(4, max=3)
    tn._assert_async(tn.tensor(2))
    with pytest.raises(RuntimeError, match="single nonzero value, but got zero"):
        tn._assert_async(tn.tensor(0))
    with pytest.raises(RuntimeError, match=r"^m$"):
        tn._assert_async(tn.tensor(0.0), "m")
    with pytest.raises(TypeError, match="must be Tensor, not bool"):
        tn._assert_async(True)
    assert tn.random.default_generator is tn.default_generator


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (1, int, True), ([1], list[int], True), ([1.0], list[int], False),
        ([1, 1.0], typing.List[int], False), ({"a": 1}, dict[str, int], True),  # noqa: UP006
        ({"a": 1}, dict[str, str], False), ({1: [1]}, dict[int, list[int]], True),
        ((1, "a"), tuple[int, str], True), ((1,), tuple[int, str], False),
        ((1, 2, 3), tuple[int, ...], True), ((1, "a"), tuple[int, ...], False),
        (None, typing.Optional[int], True),  # noqa: UP045
        ("a", float | int, False), (1, int | None, True),
        ([1], (int, list[int]), True), (tn.ones(1), tn.Tensor, True), ((1,), list[int], False),
    ],
)  # fmt: skip
def test_types_with_parameters(value: Any, kind: Any, wanted: bool) -> None:
    """As PyTorch 2.13 answers."""
    assert tn.jit.isinstance(value, kind) is wanted


def test_types_without_parameters_are_refused() -> None:
    with pytest.raises(RuntimeError, match="list without a contained type"):
        tn.jit.isinstance([1], list)
    with pytest.raises(RuntimeError, match="Dict without a contained type"):
        tn.jit.isinstance({}, typing.Dict)  # noqa: UP006
    with pytest.warns(UserWarning, match="empty container"):
        assert tn.jit.isinstance([], list[int])
    with pytest.raises(AttributeError, match="no attribute 'is_instance'"):
        tn.jit.is_instance  # noqa: B018


@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (3, 6, 7)])
def test_gradient_of_maxima_by_their_places(shape: tuple[int, ...]) -> None:
    x = tn.randn(shape, dtype=tn.float64, requires_grad=True)
    y, at = tn.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    g = tn.randn(y.shape, dtype=tn.float64)
    backward = tn.ops.aten.max_pool2d_with_indices_backward
    found = backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, at)
    assert tn.equal(found, tn.autograd.grad(y, x, g)[0])
