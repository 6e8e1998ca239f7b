"""Quantized tensors against the definition in NumPy, float32 where PyTorch's is."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import tenon as tn

X = np.random.default_rng(0).normal(size=(5, 8)).astype("f4") * 9
KINDS = pytest.mark.parametrize(
    ("kind", "low", "high", "kept"),
    [(tn.quint8, 0, 255, tn.uint8), (tn.qint8, -128, 127, tn.int8),
     (tn.qint32, -(2**31), 2**31 - 1, tn.int32)],
    ids=str,
)  # fmt: skip


def whole(x: np.ndarray, scale: Any, zero: Any, low: int, high: int) -> np.ndarray:
    steps = (np.float32(1) / np.asarray(scale, "f4")).astype("f8")
    return np.clip(np.rint(x * steps + zero), low, high)


@KINDS
def test_one_grid_for_all(kind: Any, low: int, high: int, kept: Any) -> None:
    q = tn.quantize_per_tensor(tn.tensor(X), 0.07, 3, kind)
    want = whole(X, 0.07, 3, low, high)
    assert q.int_repr().dtype is kept and np.array_equal(q.int_repr().double().numpy(), want)
    values = q.dequantize()
    assert values.dtype is tn.float32 and np.allclose(values.numpy(), (want - 3) * 0.07, rtol=1e-6)
    assert tn.dequantize([q, q])[1].equal(values)
    assert q.dtype is kind and q.is_quantized and not tn.ones(1).is_quantized
    assert (q.q_scale(), q.q_zero_point(), q.qscheme()) == (0.07, 3, tn.per_tensor_affine)
    assert q.shape == (5, 8) and q.element_size() == q.int_repr().element_size()


def test_ties_and_ends_are_pytorchs() -> None:
    # PyTorch 2.13: torch.quantize_per_tensor(x, 0.1, 11, torch.quint8).int_repr()
    x = tn.tensor([-1.05, -0.05, 0.05, 0.15, 0.25, 1.0, 2.0, 300.0, -300.0, 0.35])
    q = tn.quantize_per_tensor(x, 0.1, 11, tn.quint8)
    assert q.int_repr().tolist() == [1, 10, 12, 12, 14, 21, 31, 255, 0, 14]
    d = tn.quantize_per_tensor_dynamic(x, tn.quint8, False)
    assert (d.q_scale(), d.q_zero_point()) == (2.3529411764705883, 128)
    d = tn.quantize_per_tensor_dynamic(x, tn.qint8, True)
    assert (d.q_scale(), d.q_zero_point()) == (4.724409448818897, -1)
    assert d.int_repr().tolist() == [-1, -1, -1, -1, -1, -1, -1, 62, -64, -1]


def test_a_grid_for_each_channel() -> None:
    scale, zero = [0.1, 0.2, 0.3, 0.5, 1.0], [0, 1, 2, 3, -4]
    q = tn.quantize_per_channel(tn.tensor(X), tn.tensor(scale), tn.tensor(zero), 0, tn.qint8)
    at = np.array(zero)[:, None]
    want = whole(X, np.array(scale)[:, None], at, -128, 127)
    assert np.array_equal(q.int_repr().double().numpy(), want)
    assert np.allclose(q.dequantize().numpy(), (want - at) * np.array(scale)[:, None], rtol=1e-6)
    assert np.allclose(q.q_per_channel_scales().numpy(), np.array(scale, "f4"))
    assert q.q_per_channel_zero_points().tolist() == zero and q.q_per_channel_axis() == 0
    assert q.qscheme() == tn.per_channel_affine and q.clone().dequantize().equal(q.dequantize())
    with pytest.raises(RuntimeError, match="for each channel"):
        q.q_scale()
    with pytest.raises(NotImplementedError, match="t.. is not there"):
        q.t()


@pytest.mark.parametrize(
    ("move", "plain"),
    [
        (lambda q: q.t(), lambda a: a.T), (lambda q: q[1:, 2], lambda a: a[1:, 2]),
        (lambda q: q.reshape(8, 5), lambda a: a.reshape(8, 5)),
        (lambda q: q.permute(1, 0).contiguous(), lambda a: a.T),
        (lambda q: q.chunk(2, 1)[1], lambda a: a[:, 4:]), (lambda q: q.flatten(), np.ravel),
        (lambda q: tn.cat([q, q], 1), lambda a: np.concatenate([a, a], 1)),
        (lambda q: tn.relu(q), lambda a: np.maximum(a, 0)),
        (lambda q: copy.deepcopy(q), lambda a: a), (lambda q: q.detach().clone(), lambda a: a),
        (lambda q: pickle.loads(pickle.dumps(q)), lambda a: a),
    ],
)  # fmt: skip
def test_numbers_move_with_their_grid(move: Any, plain: Any) -> None:
    q = tn.quantize_per_tensor(tn.tensor(X), 0.1, 100, tn.quint8)
    moved = move(q)
    assert moved.is_quantized and (moved.q_scale(), moved.q_zero_point()) == (0.1, 100)
    assert np.array_equal(moved.dequantize().numpy(), plain(q.dequantize().numpy()))


def test_equality_and_text() -> None:
    x = tn.tensor([0.5, 1.0])
    q = tn.quantize_per_tensor(x, 0.1, 0, tn.quint8)
    assert tn.equal(q, q.clone()) and not q.equal(tn.quantize_per_tensor(x, 0.3, 0, tn.quint8))
    assert not q.equal(tn.quantize_per_tensor(x, 0.1, 0, tn.qint8))
    assert repr(q) == (
        "tensor([0.5000, 1.0000], size=(2,), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=0)"
    )
    assert f"{q}" == repr(q) and f"{tn.quantize_per_tensor(x[0], 0.1, 0, tn.quint8):.2f}" == "0.50"
    with pytest.raises(TypeError, match="unsupported format string"):
        format(q, ".2f")
    many = tn.quantize_per_tensor([x, x], tn.tensor([0.1, 0.2]), tn.tensor([0, 1]), tn.quint8)
    assert many[1].int_repr().tolist() == [4, 6] and x.dequantize().equal(x)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda q: q + q, NotImplementedError, "not there for quantized tensors"),
        (lambda q: q.sum(), NotImplementedError, "sum.. is not there"),
        (lambda q: tn.save(q, io.BytesIO()), TypeError, "int_repr"),
        (lambda q: tn.quantize_per_tensor(tn.ones(1).double(), 0.1, 0, tn.quint8), RuntimeError,
         "only works on Float Tensor, got tenon.float64"),
        (lambda q: tn.quantize_per_tensor(tn.ones(1), 0.1, 300, tn.quint8), RuntimeError,
         "zero_point 300 is above upper"),
        (lambda q: tn.quantize_per_tensor(tn.ones(1), 0.1, -1, tn.quint8), RuntimeError,
         "zero_point -1 is below lower"),
        (lambda q: tn.quantize_per_tensor(tn.ones(1), 0.1, 0, tn.int8), RuntimeError,
         "expected qint8"),
        (lambda q: tn.quantize_per_channel(tn.ones(2, 3), tn.ones(2), tn.zeros(2), 1, tn.qint8),
         RuntimeError, "expected 3 scales"),
        (lambda q: tn.quantize_per_channel(tn.ones(2), tn.ones(2), tn.zeros(2), 1, tn.qint8),
         RuntimeError, "axis 1"),
        (lambda q: q.q_per_channel_axis(), RuntimeError, "one grid"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(tn.quantize_per_tensor(tn.ones(2), 0.1, 0, tn.quint8))
