"""cat and stack of parts in any layout, against NumPy; what is made of them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import tenon as tn

DTYPES = ("bool", "int8", "float16", "float32", "int64", "complex128")


def assert_same(got: tn.Tensor, want: np.ndarray) -> None:
    x = got.numpy()
    assert (x.dtype, x.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(x, want)


def packed(x: np.ndarray, rng: np.random.Generator) -> tn.Tensor:
    return tn.from_numpy(x.copy())


def turned(x: np.ndarray, rng: np.random.Generator) -> tn.Tensor:
    order = rng.permutation(x.ndim)
    t = tn.from_numpy(np.ascontiguousarray(x.transpose(order)))
    return t.permute(*np.argsort(order).tolist())


def spread(x: np.ndarray, rng: np.random.Generator) -> tn.Tensor:
    every = (slice(1, None, 2),) * x.ndim
    wide = np.ones([2 * n + 1 for n in x.shape], x.dtype)
    wide[every] = x
    return tn.from_numpy(wide)[every]


def broadcast(x: np.ndarray, rng: np.random.Generator) -> tn.Tensor:
    x[:] = x[:1]
    return tn.from_numpy(x[:1].copy()).expand(*x.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype: str) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    layouts = (packed, turned, spread, broadcast)
    for turn in range(60):
        shape = rng.choice([1, 2, 3, 8], rng.integers(1, 5)).tolist()
        dim = int(rng.integers(len(shape)))
        alike = turn % 2 == 0
        parts, tensors = [], []
        for _ in range(rng.integers(1, 6)):
            own = list(shape)
            own[dim] = shape[dim] if alike else int(rng.choice([0, 1, 2, 8]))
            x = rng.integers(0, 100, own).astype(dtype)
            parts.append(x)
            tensors.append(layouts[rng.integers(4 if x.size else 3)](x, rng))
        assert_same(tn.cat(tensors, dim), np.concatenate(parts, dim))
        for at in range(len(shape) + 1 if alike else 0):
            assert_same(tn.stack(tensors, at), np.stack(parts, at))


def test_large_parts() -> None:
    """Which several threads copy, also where an operand is transposed."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((700, 900)).astype("float32")
    y = rng.standard_normal((700, 500)).astype("float32")
    s, t = tn.from_numpy(x), tn.from_numpy(y)
    assert (tn.cat([s, t], 1).numpy() == np.concatenate([x, y], 1)).all()
    assert (tn.cat([s.T, t.T]).numpy() == np.concatenate([x.T, y.T])).all()
    for at in range(3):
        assert (tn.stack([s, s], at).numpy() == np.stack([x, x], at)).all()
        assert (tn.stack([s.T, s.T], at).numpy() == np.stack([x.T, x.T], at)).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_sequence(side: str) -> None:
    parts = [np.arange(2.0 * n).reshape(n, 2) for n in (3, 0, 5, 1)]
    want = np.full((4, 5, 2), -1.0)
    for row, x in zip(want, parts):
        row[slice(None, len(x)) if side == "right" else slice(5 - len(x), None)] = x
    leaves = [tn.from_numpy(x).requires_grad_() for x in parts]
    pad = tn.nn.utils.rnn.pad_sequence
    got = pad(leaves, batch_first=True, padding_value=-1.0, padding_side=side)
    assert (got.detach().numpy() == want).all()
    assert pad(leaves).shape == (5, 4, 2)
    (got * 3).sum().backward()
    for leaf in leaves:
        assert (leaf.grad.numpy() == np.full(leaf.shape, 3.0)).all()
    with pytest.raises(RuntimeError, match="must match"):
        pad([tn.ones(2, 3), tn.ones(3, 2)])


def test_block_diag() -> None:
    got = tn.block_diag(tn.ones(2, 2), tn.tensor([3, 4]), tn.tensor(5.0), tn.ones(0, 1))
    want = np.zeros((4, 6), "float32")
    want[:2, :2], want[2, 2:4], want[3, 4] = 1, (3, 4), 5
    assert_same(got, want)


ORDERS = [
    *permutations(("int16", "float32", "float64")),
    *permutations(("int16", *["float64"] * 2)),
]


@pytest.mark.parametrize("dtypes", list(dict.fromkeys(ORDERS)))
def test_parts_of_several_dtypes(dtypes: tuple[str, ...]) -> None:
    """The widest dtype holds all of them, wherever it stands."""
    parts = [np.array([[1.0, 2.0], [3.0, k]], dtype=d) for k, d in enumerate(dtypes)]
    given = [tn.from_numpy(p) for p in parts]
    assert_same(tn.cat(given), np.concatenate(parts))
    assert_same(tn.stack(given, 1), np.stack(parts, 1))
