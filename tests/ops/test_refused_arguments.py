"""What operators refuse in the values of their arguments, each with the words that only this check
says, and with PyTorch's class of error where PyTorch has the call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside

Call = Callable[[Any], Any]


def functional(lib: Any) -> Any:
    return importlib.import_module(lib.__name__ + ".nn.functional")


def deep(lib: Any, n: int) -> Any:
    """A tensor of n dimensions."""
    return lib.ones([1] * n)


def compressed(lib: Any, rows: Any, columns: Any, size: tuple[int, ...] = (2, 2)) -> Any:
    values = lib.ones(len(columns))
    return lib.sparse_csr_tensor(
        lib.tensor(rows), lib.tensor(columns), values, size, check_invariants=True
    )


def recurrent(lib: Any, data: tuple[int, ...], sizes: list[int], params: int = 4) -> Any:
    """gru of packed rows."""
    weights = [lib.ones(6, 3), lib.ones(6, 2), lib.ones(6), lib.ones(6)][:params]
    hidden = lib.zeros(1, sizes[0], 2)
    return lib.gru(lib.ones(*data), lib.tensor(sizes), hidden, weights, True, 1, 0.0, False, False)


def cell(lib: Any, hidden: tuple[int, ...], weight: tuple[int, ...]) -> Any:
    return lib.rnn_tanh_cell(lib.ones(1, 3), lib.ones(*hidden), lib.ones(2, 3), lib.ones(*weight))


def quantized(scale: float, zero: int, low: int, high: int) -> Any:
    weight = tn.ones(2, 3, dtype=tn.int8)
    return tn._C._ops._linear_int8(f, weight, tn.ones(2), None, scale, zero, low, high)


def unpooled(lib: Any, at: int) -> Any:
    index = lib.full((1, 1, 2), at)
    return functional(lib).max_unpool1d(lib.ones(1, 1, 2), index, 2)


SHARED: dict[str, tuple[str, Call]] = {
    "added slices of another rank": (
        "source tensor shape must match self tensor shape",
        lambda t: t.ones(2, 3).index_add(0, t.tensor([0, 1]), t.ones(2)),
    ),
    "added slices of another shape": (
        "Got self.shape = [2, 3] source.shape = [2, 4]",
        lambda t: t.ones(2, 3).index_add(0, t.tensor([0, 1]), t.ones(2, 4)),
    ),
    "reduced slices of another shape": (
        "index_reduce_(): source [2, 4] and self [2, 3] differ at dimension 1",
        lambda t: t.ones(2, 3).index_reduce(0, t.tensor([0, 1]), t.ones(2, 4), "prod"),
    ),
    "close in another dtype": (
        "did not match",
        lambda t: t.isclose(t.ones(2), t.ones(2, dtype=t.float64)),
    ),
    "no points": ("Invalid number of data points (0) specified", lambda t: t.fft.fft(t.ones(3), 0)),
    "no rows of points": (
        "Invalid number of data points (0) specified",
        lambda t: t.fft.fftn(t.ones(3, 3), (0, 2)),
    ),
    "more sizes than dimensions": (
        "Got shape with 2 values but input tensor only has 1 dimensions.",
        lambda t: t.fft.fftn(t.ones(3), (2, 2)),
    ),
    "transform of a number": ("but tensor has no dimensions", lambda t: t.fft.fft(t.tensor(1.0))),
    "power into single precision": (
        "the output given to float_power has dtype",
        lambda t: t.float_power(t.ones(2), 2.0, out=t.ones(2)),
    ),
    "laid twice along one dimension": (
        "Duplicate dim not allowed",
        lambda t: t.empty_permuted((2, 3), (1, 1)),
    ),
    "laid along another dimension": (
        "Dimension out of range (expected to be between 0 and 1, but got 2 at index 1)",
        lambda t: t.empty_permuted((2, 3), (0, 2)),
    ),
    "laid along fewer": (
        "len(size) = 2 is not equal to len(physical_layout) = 1",
        lambda t: t.empty_permuted((2, 3), (0,)),
    ),
    "no classes": (
        "num_classes should be positive",
        lambda t: functional(t).one_hot(t.tensor([0]), 0),
    ),
    "negative classes": (
        "Class values must be non-negative",
        lambda t: functional(t).one_hot(t.tensor([-1]), 3),
    ),
    "rows that end early": (
        "[..., -1] == nnz` is not satisfied",
        lambda t: compressed(t, [0, 1, 1], [0, 1]),
    ),
    "rows that begin late": (
        "[..., 0] == 0` is not satisfied",
        lambda t: compressed(t, [1, 1, 2], [0, 1]),
    ),
    "rows of a tensor by columns": (
        "crow_indices expected sparse row compressed tensor layout",
        lambda t: t.eye(2).to_sparse_csc().crow_indices(),
    ),
    "columns of a tensor by rows": (
        "ccol_indices expected sparse column compressed tensor layout",
        lambda t: t.eye(2).to_sparse_csr().ccol_indices(),
    ),
    "probabilities above one": (
        "all elements of input should be between 0 and 1",
        lambda t: functional(t).binary_cross_entropy(t.full((2,), 1.5), t.ones(2)),
    ),
    "targets above one": (
        "all elements of target should be between 0 and 1",
        lambda t: functional(t).binary_cross_entropy(t.ones(2), t.full((2,), 1.5)),
    ),
    "targets of another dtype": (
        "ound dtype",
        lambda t: functional(t).binary_cross_entropy(t.ones(2), t.ones(2, dtype=t.float64)),
    ),
    "windows of no size": (
        "kernel size should be greater than zero, but got kernel_height: 0 kernel_width: 2",
        lambda t: functional(t).unfold(t.ones(1, 1, 4, 4), (0, 2)),
    ),
    "windows with less padding": (
        "padding should be non-negative, but got pad_height: -1 pad_width: 0",
        lambda t: functional(t).unfold(t.ones(1, 1, 4, 4), 2, padding=(-1, 0)),
    ),
    "state of another width": (
        "hidden0 has inconsistent hidden_size: got 3, expected 2",
        lambda t: cell(t, (1, 3), (2, 2)),
    ),
    "state of another batch": (
        "Input batch size 1 doesn't match hidden0 batch size 2",
        lambda t: cell(t, (2, 2), (2, 2)),
    ),
    "weights too few": ("gru: Expected 4 params, got 3", lambda t: recurrent(t, (3, 3), [2, 1], 3)),
    "rate of no decay": (
        "exponential_ expects lambda > 0.0, but found lambda=0",
        lambda t: t.ones(2).exponential_(0),
    ),
    "width of nothing": (
        "cauchy_ expects sigma > 0.0, but found sigma=0",
        lambda t: t.ones(2).cauchy_(0, 0),
    ),
    "probability below zero": (
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda t: t.multinomial(t.tensor([0.5, -0.5]), 1),
    ),
    "probability that is infinite": (
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda t: t.multinomial(t.tensor([0.5, float("inf")]), 1),
    ),
    "probability that is no number": (
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda t: t.multinomial(t.tensor([0.5, float("nan")]), 1, replacement=True),
    ),
    "unpooled outside": ("Found an invalid max index: 4", lambda t: unpooled(t, 4)),
    "unpooled before": ("Found an invalid max index: -1", lambda t: unpooled(t, -1)),
    "strides without end": ("reaches too far", lambda t: t.empty_strided((2, 2), (2**62, 2**62))),
}
f = tn.ones(2, 3)
R, V, N = RuntimeError, ValueError, NotImplementedError
OWN: list[Refusal] = [
    (N, "repeat: too many repeated dimensions", lambda: tn.ones([0] * 33).repeat([2] * 33)),
    (V, "kron: at most", lambda: tn.kron(deep(tn, 33), deep(tn, 33))),
    (V, "batch_sizes sum up to 3, but data has 4 rows", lambda: recurrent(tn, (4, 3), [2, 1])),
    (
        R,
        "Expected packed data to have 2 dimensions, got 3",
        lambda: recurrent(tn, (3, 1, 3), [2, 1]),
    ),
    (V, "batch_sizes must be positive, never grow", lambda: recurrent(tn, (3, 3), [1, 2])),
    (V, "batch_sizes must be positive, never grow", lambda: recurrent(tn, (3, 3), [3, 0])),
    (R, "Expected w_hh to have 2 dimensions, got 1", lambda: cell(tn, (1, 2), (2,))),
    (
        R,
        "scatter_reduce: complex numbers have no order",
        lambda: (f[0] * 1j).scatter_reduce(0, tn.tensor([0]), f[0, :1] * 1j, "amax"),
    ),
    (
        R,
        "layout sparse_bsr needs a blocksize of two numbers",
        lambda: tn.eye(2).to_sparse(layout=tn.sparse_bsr),
    ),
    (R, "Device type 'meta' has no random numbers", lambda: tn.Generator("meta")),
    (R, "for input, but got: [4]", lambda: functional(tn).unfold(tn.ones(4), 2)),
    (
        R,
        "im2col(): argument 'kernel_size' (position 2) must hold 2 ints, not 3",
        lambda: functional(tn).unfold(tn.ones(1, 1, 4, 4), (1, 1, 1)),
    ),
    (
        R,
        "the windows reach further than sizes can be",
        lambda: functional(tn).unfold(tn.ones(1, 1, 4, 4), 2, padding=2**62),
    ),
    (
        R,
        "the windows reach further than sizes can be",
        lambda: functional(tn).unfold(tn.ones(1, 1, 4, 4), 3, dilation=2**62),
    ),
    (
        V,
        "whole numbers from 0 to 300 with zero at 0 are not of 8 bits",
        lambda: quantized(0.1, 0, 0, 300),
    ),
    (
        V,
        "whole numbers from 0 to 255 with zero at 256 are not of 8 bits",
        lambda: quantized(0.1, 256, 0, 255),
    ),
    (V, "a scale must be finite and not negative", lambda: quantized(-0.1, 0, 0, 255)),
    (V, "a scale must be finite and not negative", lambda: quantized(float("inf"), 0, 0, 255)),
    (V, "a scale must be finite and not negative", lambda: quantized(float("nan"), 0, 0, 255)),
]
CASES = by_name(own=OWN)


@pytest.mark.parametrize("name", SHARED)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    check_beside(*SHARED[name])


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])


def test_celu_divides_by_its_factor() -> None:
    for call in (tn.celu, tn.celu_, tn.nn.functional.celu):
        with pytest.raises(RuntimeError, match="alpha cannot be 0 for CELU"):
            call(tn.ones(2), alpha=0)
    assert tn.celu(tn.tensor([-1.0, 2.0]), alpha=-1).isfinite().all()
