"""Views, shapes, new tensors, copies and conversions: against PyTorch where it is there,
against NumPy or by their own account where not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from both import both, both_fail, flat

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4))
M = RNG.standard_normal((4, 6))
V = RNG.standard_normal(6)
ONE = RNG.standard_normal((1, 3, 1, 4))
NONE = np.zeros((0, 4))
POINT = np.array(1.5)

VIEWS: dict[str, tuple[Callable[..., Any], Any]] = {
    "view": (lambda m, x: x.view(6, 4), X),
    "view_infer": (lambda m, x: x.view(-1, 4), X),
    "view_transposed": (lambda m, x: x.transpose(0, 1).view(3, 2, 2, 2), X),
    "view_empty": (lambda m, x: x.view(4, 0), NONE),
    "view_point": (lambda m, x: x.view(1, 1), POINT),
    "view_as": (lambda m, x: x.view_as(m.zeros(24)), X),
    "reshape": (lambda m, x: x.reshape(4, 6), X),
    "reshape_copy": (lambda m, x: x.transpose(0, 2).reshape(-1), X),
    "reshape_as": (lambda m, x: x.reshape_as(m.zeros(12, 2)), X),
    "flatten": (lambda m, x: x.flatten(), X),
    "flatten_some": (lambda m, x: m.flatten(x, 1), X),
    "flatten_point": (lambda m, x: x.flatten(), POINT),
    "ravel": (lambda m, x: x.t().ravel(), M),
    "unflatten": (lambda m, x: x.unflatten(1, (2, -1)), M),
    "squeeze": (lambda m, x: x.squeeze(), ONE),
    "squeeze_dim": (lambda m, x: x.squeeze(2), ONE),
    "squeeze_dim_stays": (lambda m, x: x.squeeze(1), ONE),
    "squeeze_dims": (lambda m, x: x.squeeze((0, 1)), ONE),
    "unsqueeze": (lambda m, x: x.unsqueeze(1), X),
    "unsqueeze_end": (lambda m, x: x.unsqueeze(-1), X),
    "unsqueeze_point": (lambda m, x: x.unsqueeze(0), POINT),
    "transpose": (lambda m, x: x.transpose(0, -1), X),
    "swapaxes": (lambda m, x: m.swapaxes(x, 0, 1), X),
    "t": (lambda m, x: x.t(), M),
    "t_vector": (lambda m, x: x.t(), V),
    "permute": (lambda m, x: x.permute(2, 0, 1), X),
    "permute_negative": (lambda m, x: x.permute(-1, 0, 1), X),
    "movedim": (lambda m, x: m.movedim(x, 0, -1), X),
    "movedim_several": (lambda m, x: m.movedim(x, (0, 1), (2, 0)), X),
    "expand": (lambda m, x: x.expand(2, 3, 5, 4), ONE),
    "expand_keep": (lambda m, x: x.expand(-1, 3, 2, -1), ONE),
    "expand_more": (lambda m, x: x.expand(2, 1, 6), V),
    "expand_as": (lambda m, x: x.expand_as(m.zeros(3, 6)), V),
    "broadcast_to": (lambda m, x: m.broadcast_to(x, (3, 6)), V),
    "select": (lambda m, x: x.select(1, -1), X),
    "narrow": (lambda m, x: x.narrow(1, 2, 3), M),
    "narrow_negative": (lambda m, x: x.narrow(1, -3, 2), M),
    "index_slices": (lambda m, x: x[1:, ::2, -3:], X),
    "index_empty": (lambda m, x: x[3:1], M),
    "diagonal": (lambda m, x: x.diagonal(), M),
    "diagonal_above": (lambda m, x: x.diagonal(2), M),
    "diagonal_below": (lambda m, x: x.diagonal(-1, 1, 2), X),
    "diagonal_outside": (lambda m, x: x.diagonal(9), M),
    "unfold": (lambda m, x: x.unfold(1, 3, 2), M),
    "unfold_dense": (lambda m, x: x.unfold(0, 2, 1), M),
    "as_strided": (lambda m, x: x.as_strided((3, 2), (2, 1), 3), M),
    "as_strided_overlap": (lambda m, x: x.as_strided((3, 3), (1, 1)), V),
    "split": (lambda m, x: x.split(4, 1), M),
    "split_sizes": (lambda m, x: m.split(x, [1, 0, 3]), M),
    "split_with_sizes": (lambda m, x: x.split_with_sizes([2, 4], 1), M),
    "chunk": (lambda m, x: x.chunk(4, 1), M),
    "chunk_empty": (lambda m, x: x.chunk(3), NONE),
    "tensor_split": (lambda m, x: x.tensor_split(4, 1), M),
    "tensor_split_at": (lambda m, x: m.tensor_split(x, (1, 3, 9), 1), M),
    "hsplit": (lambda m, x: m.hsplit(x, 3), M),
    "unbind": (lambda m, x: x.unbind(1), X),
    "unbind_one": (lambda m, x: x.unbind()[1], X),
    "complex_views": (
        lambda m, x: m.view_as_real(m.view_as_complex(x)),
        RNG.standard_normal((3, 2)),
    ),
    "contiguous": (lambda m, x: x.t().contiguous(), M),
    "clone": (lambda m, x: x.t().clone(), M),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    fn, x = VIEWS[name]
    both(fn, x)


@pytest.mark.parametrize("name", VIEWS)
def test_strides(name: str) -> None:
    """Views share memory where PyTorch's do and have its strides."""
    fn, x = VIEWS[name]
    if x.size == 0:
        pytest.skip("strides of nothing mean nothing")

    def places(lib: Any) -> list[Any]:
        return [[*t.stride(), t.storage_offset()] for t in flat(fn(lib, lib.from_numpy(x)))]

    stored.same(places(tn), stored.of_torch(places))


FAILURES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "view_size": (lambda m, x: x.view(5, 5), M, "shape '[5, 5]' is invalid for input of size 24"),
    "view_two_holes": (lambda m, x: x.view(-1, -1), M, "only one dimension can be inferred"),
    "view_strides": (
        lambda m, x: x.t().view(24),
        M,
        "view size is not compatible with input tensor's",
    ),
    "view_ambiguous": (lambda m, x: x.view(0, -1), NONE, "cannot reshape tensor of 0 elements"),
    "view_negative": (lambda m, x: x.view(-2, 3), M, "invalid shape dimension -2"),
    "transpose": (lambda m, x: x.transpose(0, 2), M, "Dimension out of range"),
    "permute_count": (lambda m, x: x.permute(0), M, "number of dimensions in the tensor input"),
    "permute_twice": (lambda m, x: x.permute(0, 0), M, "duplicate dims are not allowed"),
    "expand": (lambda m, x: x.expand(2, 5), V, "must match the existing size (6)"),
    "expand_fewer": (
        lambda m, x: x.expand(6),
        M,
        "the number of sizes provided (1) must be greater",
    ),
    "select": (lambda m, x: x.select(0, 4), M, "index 4 out of range for tensor of size"),
    "select_point": (lambda m, x: x.select(0, 0), POINT, "select() cannot be applied to a 0-dim"),
    "narrow_long": (lambda m, x: x.narrow(0, 2, 3), M, "start (2) + length (3) exceeds dimension"),
    "narrow_start": (lambda m, x: x.narrow(0, 9, 1), M, "start out of range"),
    "narrow_negative": (lambda m, x: x.narrow(0, 0, -1), M, "length must be non-negative"),
    "diagonal_same": (
        lambda m, x: x.diagonal(0, 1, 1),
        M,
        "diagonal dimensions cannot be identical",
    ),
    "unfold_size": (
        lambda m, x: x.unfold(0, 9, 1),
        M,
        "maximum size for tensor at dimension 0 is 4",
    ),
    "unfold_step": (lambda m, x: x.unfold(0, 2, 0), M, "step is 0 but must be > 0"),
    "as_strided": (
        lambda m, x: x.as_strided((9, 9), (9, 9)),
        M,
        "out of bounds for storage of size",
    ),
    "split": (
        lambda m, x: x.split_with_sizes([1, 1]),
        M,
        "split_with_sizes expects split_sizes to sum",
    ),
    "split_zero": (lambda m, x: x.split(0), M, "split_size can only be 0 if dimension size is 0"),
    "chunk": (lambda m, x: x.chunk(0), M, "chunk expects `chunks` to be greater than 0"),
    "t": (lambda m, x: x.t(), X, "t() expects a tensor with <= 2 dimensions, but self is 3D"),
    "movedim": (lambda m, x: m.movedim(x, (0, 0), (0, 1)), X, "repeated dim in `source`"),
    "squeeze": (lambda m, x: x.squeeze(3), X, "Dimension out of range"),
    "unsqueeze": (lambda m, x: x.unsqueeze(4), X, "Dimension out of range"),
    "copy_expanded": (
        lambda m, x: x.expand(3, 6).copy_(x),
        V,
        "more than one element of the written-to",
    ),
    "fill_overflow": (lambda m, x: m.zeros(2, dtype=m.uint8).fill_(300), V, "without overflow"),
    "zeros_negative": (lambda m, x: m.zeros(-1), V, "negative"),
    "arange_sign": (
        lambda m, x: m.arange(3, 1),
        V,
        "upper bound and lower bound inconsistent with step",
    ),
    "arange_step": (lambda m, x: m.arange(0, 1, 0), V, "step must be nonzero"),
    "arange_fraction": (
        lambda m, x: m.arange(0, 64, 0.5, out=m.empty(0, dtype=m.int64)),
        V,
        "step must be nonzero",
    ),
    "linspace": (lambda m, x: m.linspace(0, 1, -1), V, "number of steps must be non-negative"),
    "copy_shape": (lambda m, x: m.zeros(4).copy_(x), V, ""),
    "channels_last": (
        lambda m, x: x.contiguous(memory_format=m.channels_last),
        X,
        "required rank 4 tensor",
    ),
    "real_complex": (
        lambda m, x: m.view_as_real(x),
        X,
        "view_as_real is only supported for complex",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    fn, x, words = FAILURES[name]
    both_fail(fn, x, words=words)


EMPTY: dict[str, Callable[[Any], Any]] = {
    "empty_like": lambda m: m.empty_like(m.zeros(2, 3).t()),
    "empty_like_dtype": lambda m: m.empty_like(m.zeros(2, 0, 3), dtype=m.int16),
    "empty_like_packed": lambda m: m.empty_like(
        m.zeros(2, 3).t(), memory_format=m.contiguous_format
    ),
    "empty_strided": lambda m: m.empty_strided((3, 4), (1, 3)),
    "empty_strided_gaps": lambda m: m.empty_strided((2, 3), (9, 2), dtype=m.float64),
    "new_empty": lambda m: m.zeros(2, 3, dtype=m.float16).new_empty((4, 5)),
    "new_empty_dtype": lambda m: m.zeros(2).new_empty((), dtype=m.bool),
    "new_empty_strided": lambda m: m.zeros(2, dtype=m.int8).new_empty_strided((2, 3), (1, 2)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name: str) -> None:
    """Sizes, strides and dtype; every element has a place of its own."""

    def facts(lib: Any) -> list[Any]:
        t = EMPTY[name](lib)
        return [str(t.dtype).split(".")[-1], [*t.shape], [*t.stride()], t.requires_grad]

    stored.same(facts(tn), stored.of_torch(facts))
    t = EMPTY[name](tn)
    numbers = tn.arange(t.numel()).reshape(t.shape).to(t.dtype)
    t.copy_(numbers)
    assert tn.equal(t, numbers)


CREATION: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda m: m.zeros(2, 3),
    "zeros_list": lambda m: m.zeros([2, 0]),
    "ones_int": lambda m: m.ones(3, dtype=m.int16),
    "ones_half": lambda m: m.ones(2, dtype=m.float16),
    "full_float": lambda m: m.full((2, 2), 1.5),
    "full_int": lambda m: m.full((2,), 7),
    "full_bool": lambda m: m.full((2,), True),
    "full_like": lambda m: m.full_like(m.zeros(2, dtype=m.int32), 3),
    "zeros_like": lambda m: m.zeros_like(m.ones(2, 3), dtype=m.int64),
    "ones_like": lambda m: m.ones_like(m.zeros(2, 3).t()),
    "new_zeros": lambda m: m.ones(2, dtype=m.float64).new_zeros(3),
    "new_ones": lambda m: m.ones(2, dtype=m.int8).new_ones((3, 1)),
    "new_full": lambda m: m.ones(2).new_full((2,), 4),
    "arange": lambda m: m.arange(5),
    "arange_float": lambda m: m.arange(5.0),
    "arange_start": lambda m: m.arange(2, 9, 3),
    "arange_down": lambda m: m.arange(5, 0, -2),
    "arange_fraction": lambda m: m.arange(0, 1, 0.1),
    "arange_dtype": lambda m: m.arange(1, 4, dtype=m.float64),
    "arange_empty": lambda m: m.arange(0),
    "range": lambda m: m.arange(0.5, 3),
    "linspace": lambda m: m.linspace(0, 1, 7, dtype=m.float64),
    "linspace_one": lambda m: m.linspace(3, 9, 1),
    "linspace_int": lambda m: m.linspace(0, 10, 4, dtype=m.int64),
    "logspace": lambda m: m.logspace(-2, 2, 5),
    "logspace_base": lambda m: m.logspace(0, 3, 4, base=2, dtype=m.float64),
    "eye": lambda m: m.eye(3),
    "eye_m": lambda m: m.eye(2, 4, dtype=m.int64),
    "tril_indices": lambda m: m.tril_indices(3, 4, 1),
    "tril_indices_low": lambda m: m.tril_indices(4, 3, -2),
    "triu_indices": lambda m: m.triu_indices(3, 4, -1),
    "triu_indices_high": lambda m: m.triu_indices(3, 4, 2),
    "fill": lambda m: m.zeros(2, 3).t().fill_(2.5),
    "fill_expanded": lambda m: m.zeros(3, 1).expand(3, 2).fill_(2),
    "fill_tensor": lambda m: m.zeros(3).fill_(m.tensor(4)),
    "zero": lambda m: m.ones(2, 3)[:, 1:].zero_(),
    "copy_converts": lambda m: m.zeros(2, 3, dtype=m.int32).copy_(m.full((3,), 2.7)),
    "to_int": lambda m: m.full((2,), -1.5).to(m.int8),
    "to_bool": lambda m: m.tensor([0.0, 0.5]).to(m.bool),
    "to_complex": lambda m: m.ones(2).to(m.complex64),
    "empty_shape": lambda m: m.empty(2, 0, 3),
    "view_bytes": lambda m: m.ones(2).view(m.int32),
    "view_halves": lambda m: m.ones(2).view(m.int16),
    "view_wider": lambda m: m.ones(4).view(m.float64),
    "channels_last": lambda m: m.zeros(2, 3, 4, 5).contiguous(memory_format=m.channels_last),
    "real": lambda m: m.real(m.ones(2, dtype=m.complex64)),
    "imag": lambda m: m.imag(m.ones(2, dtype=m.complex128)),
    "transpose_inplace": lambda m: m.zeros(2, 3).transpose_(0, 1),
    "squeeze_inplace": lambda m: m.zeros(2, 1, 3).squeeze_(),
    "unsqueeze_inplace": lambda m: m.zeros(2).unsqueeze_(0),
    "t_inplace": lambda m: m.zeros(2, 3).t_(),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    both(CREATION[name])


WRITES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "fill": (lambda m, x: (x * 1).fill_(3.0), (M,)),
    "zero_part": (lambda m, x: zero_part(x * 1), (M,)),
    "copy": (lambda m, x, v: (x * 1).copy_(v), (M, V)),
    "copy_part": (lambda m, x, v: copy_part(x * 1, v), (M, V)),
    "copy_to_leaf_view": (lambda m, v: copy_part(m.zeros(4, 6, dtype=v.dtype), v), (V,)),
    "setitem": (lambda m, x, v: set_row(x * 1, v), (M, V)),
    "transpose_inplace": (lambda m, x: (x * 1).transpose_(0, 1), (M,)),
    "to": (lambda m, x: x.to(m.float32), (M,)),
    "tril": (lambda m, x: m.tril(x, 1), (M,)),
    "triu": (lambda m, x: m.triu(x, -1), (X,)),
    "tril_inplace": (lambda m, x: (x * 1).tril_(), (M,)),
}


def zero_part(x: Any) -> Any:
    x[1:3].zero_()
    return x


def copy_part(x: Any, v: Any) -> Any:
    x.select(0, 1).copy_(v)
    return x


def set_row(x: Any, v: Any) -> Any:
    x[2] = v
    return x


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    fn, arrays = WRITES[name]
    both(fn, *arrays)


def test_detach_shares_memory_and_stops_gradients() -> None:
    x = tn.ones(3, requires_grad=True)
    d = x.detach()
    assert not d.requires_grad
    d[0] = 5
    assert x[0].item() == 5


def test_repeated_reshape_of_a_view_is_a_view() -> None:
    x = tn.arange(6)
    assert x.reshape(2, 3).reshape(6).data_ptr() == x.data_ptr()


CUTS = [(0, 1, 3, 1), (1, 0, 5, 2), (1, -3, None, 1), (0, 5, 2, 1)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_slice(cut: tuple[Any, ...]) -> None:
    """Both orders of slice's gradient, and of narrow's, which is made of it."""
    dim, start, end, step = cut
    x = np.random.default_rng(1).standard_normal((4, 5))
    index = [slice(None)] * 2
    index[dim] = slice(start, end, step)
    t = tn.tensor(x, requires_grad=True)
    y = tn._C._ops.slice(t, dim, start, end, step)
    np.testing.assert_array_equal(y.detach().numpy(), x[tuple(index)])
    w = np.cos(np.arange(y.numel())).reshape(y.shape)
    (g,) = tn.autograd.grad((y * y * tn.tensor(w)).sum(), t, create_graph=True)
    want = np.zeros_like(x)
    want[tuple(index)] = 2 * x[tuple(index)] * w
    np.testing.assert_allclose(g.detach().numpy(), want, rtol=1e-12)
    if y.numel():
        (h,) = tn.autograd.grad((g * g).sum(), t)
        want = np.zeros_like(x)
        want[tuple(index)] = 8 * x[tuple(index)] * w * w
        np.testing.assert_allclose(h.numpy(), want, rtol=1e-12)


def test_narrow_from_where_a_tensor_says() -> None:
    x = tn.arange(6).reshape(2, 3)
    assert x.narrow(1, tn.tensor(1), 2).tolist() == [[1, 2], [4, 5]]
    for start in (tn.tensor([1]), tn.tensor(True), tn.tensor(1.0)):
        with pytest.raises(RuntimeError, match="start must be an 0-dim integral Tensor"):
            x.narrow(1, start, 2)
