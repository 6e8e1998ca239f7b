"""ONNX: nodes without their attributes mean what the standard says, by its reference; activations
of recurrent nodes by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn

onnx = pytest.importorskip("onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
helper, numpy_helper = onnx.helper, onnx.numpy_helper
DRAW = np.random.default_rng(12)


def f(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def model_of(op: str, inputs: list[Any], outputs: int, opset: int, **attributes: Any) -> Any:
    """One node; an input that is None is left out."""
    names = ["" if v is None else f"x{i}" for i, v in enumerate(inputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
        if v is not None
    ]
    results = [f"y{i}" for i in range(outputs)]
    made = [helper.make_node(op, names, results, **attributes)]
    out = [helper.make_empty_tensor_value_info(n) for n in results]
    graph = helper.make_graph(made, "g", infos, out)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def results_of(model: Any, inputs: list[Any]) -> list[np.ndarray]:
    given = [tn.tensor(v) for v in inputs if v is not None]
    found = tn.onnx.load(model)(*given)
    return [t.detach().numpy() for t in (found if isinstance(found, (tuple, list)) else [found])]


IMAGE = f(2, 4, 6, 6)
CASES: dict[str, tuple[str, list[Any], int]] = {
    op.lower(): (op, inputs, 1)
    for op, inputs in {
        "LeakyRelu": [f(3, 4)], "Elu": [f(3, 4)], "Selu": [f(3, 4)], "Celu": [f(3, 4)],
        "HardSigmoid": [f(3, 4) * 4], "ThresholdedRelu": [f(3, 4) * 3], "Shrink": [f(3, 4)],
        "HardSwish": [f(3, 4) * 4], "Softmax": [f(2, 3, 4)], "LogSoftmax": [f(2, 3, 4)],
        "Hardmax": [f(2, 3, 4)], "Flatten": [f(2, 3, 4)], "Transpose": [f(2, 3, 4)],
        "Gather": [f(3, 4), np.array([2, 0])],
        "GatherElements": [f(3, 4), np.array([[0, 2, 1, 0]])],
        "GatherND": [f(3, 4), np.array([[0, 2], [1, 1]])], "Squeeze": [f(1, 3, 1)],
        "ScatterElements": [f(3, 4), np.array([[0, 2, 1, 0]]), f(1, 4)],
        "ScatterND": [f(3, 4), np.array([[2], [0]]), f(2, 4)], "ArgMax": [f(3, 4)],
        "ArgMin": [f(3, 4)], "ReduceSum": [f(3, 4)], "ReduceMean": [f(3, 4)],
        "ReduceMax": [f(3, 4)], "ReduceL2": [f(3, 4)], "ReduceLogSumExp": [f(3, 4)],
        "ReduceProd": [f(2, 3)], "CumSum": [f(3, 4), np.array(1)], "Trilu": [f(4, 4)],
        "LpNormalization": [f(3, 4)], "InstanceNormalization": [IMAGE, f(4), f(4)],
        "BatchNormalization": [IMAGE, f(4), f(4), f(4), np.abs(f(4)) + 0.5],
        "LayerNormalization": [f(3, 4), f(4), f(4)], "MeanVarianceNormalization": [IMAGE],
        "EyeLike": [f(3, 4)], "Mod": [np.array([7, -7, 5]), np.array([3, 3, -3])],
        "Dropout": [f(3, 4)], "Clip": [f(3, 4)], "GlobalAveragePool": [IMAGE],
        "GlobalMaxPool": [IMAGE], "Gemm": [f(2, 3), f(3, 4), f(4)], "MatMul": [f(2, 3), f(3, 4)],
        "Conv": [IMAGE, f(3, 4, 3, 3), f(3)], "ConvTranspose": [IMAGE, f(4, 3, 3, 3), f(3)],
        "Pad": [f(2, 3), np.array([1, 0, 2, 1])], "Expand": [f(3, 1), np.array([2, 3, 4])],
        "Tile": [f(2, 3), np.array([2, 2])], "Range": [np.array(1.0), np.array(7.0), np.array(2.0)],
        "Where": [f(3, 4) > 0, f(3, 4), f(4)], "NonZero": [f(3, 4) > 0],
        "Compress": [f(3, 4), f(5) > 0],
        "Slice": [f(4, 5), np.array([1, 0]), np.array([4, 3])], "Shape": [f(3, 4)],
        "ReverseSequence": [f(3, 2), np.array([1, 3])], "Unique": [np.array([3, 1, 3, 2])],
        "DequantizeLinear": [
            DRAW.integers(0, 255, (3, 4)).astype(np.uint8), np.abs(f(4)),
            np.arange(4, dtype=np.uint8),
        ],
        "QuantizeLinear": [f(3, 4), np.abs(f(4)) + 0.1, np.arange(4, dtype=np.uint8)],
        "IsInf": [np.array([1, np.inf, -np.inf, np.nan], np.float32)], "Not": [f(3) > 0],
    }.items()
}  # fmt: skip
CASES |= {
    "split": ("Split", [f(4, 6), np.array([1, 3])], 2),
    "topk": ("TopK", [f(3, 5), np.array([2])], 2),
    "onehot": ("OneHot", [np.array([1, 0, 2]), np.array(3), np.array([-1.0, 2.0], np.float32)], 1),
}  # fmt: skip
WITH: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "average pool": ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "max pool": ("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}),
    "lp pool": ("LpPool", [np.abs(IMAGE)], {"kernel_shape": [2, 2]}),
    "lrn": ("LRN", [f(4, 4, 3, 3)], {"size": 3}),
    "depth to space": ("DepthToSpace", [IMAGE], {"blocksize": 2}),
    "space to depth": ("SpaceToDepth", [IMAGE], {"blocksize": 2}),
    "resize": ("Resize", [IMAGE, None, np.array([1, 1, 1.5, 1.5], np.float32)], {"mode": "cubic"}),
    "resize linear": (
        "Resize", [IMAGE, None, np.array([1, 1, 2, 0.5], np.float32)], {"mode": "linear"},
    ),
    "resize nearest": ("Resize", [IMAGE, None, np.array([1, 1, 1.7, 0.6], np.float32)], {}),
    "gemm": ("Gemm", [f(3, 2), f(4, 3), f(2, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "cumsum": ("CumSum", [f(3, 4), np.array(0)], {"exclusive": 1, "reverse": 1}),
    "argmax last": (
        "ArgMax", [np.array([[1, 2, 2], [3, 3, 0]])], {"axis": 1, "select_last_index": 1},
    ),
}  # fmt: skip


def check(op: str, inputs: list[Any], outputs: int, **attributes: Any) -> None:
    model = model_of(op, inputs, outputs, 19, **attributes)
    feeds = {f"x{i}": v for i, v in enumerate(inputs) if v is not None}
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for mine, theirs in zip(results_of(model, inputs), wanted, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_without_attributes(case: str) -> None:
    op, inputs, outputs = CASES[case]
    check(op, inputs, outputs)


@pytest.mark.parametrize("case", WITH)
def test_other_attributes_left_out(case: str) -> None:
    op, inputs, attributes = WITH[case]
    check(op, inputs, 1, **attributes)


def test_bernoulli_keeps_its_dtype() -> None:
    for dtype in (np.float32, np.float64):
        p = np.array([0, 1, 1, 0], dtype)
        (found,) = results_of(model_of("Bernoulli", [p], 1, 18), [p])
        assert found.dtype == dtype and found.tolist() == [0, 1, 1, 0]


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_recurrent_nodes(name: str) -> None:
    x, w, r = f(3, 2, 4) * 2, f(1, 5, 4), f(1, 5, 5)
    model = model_of("RNN", [x, w, r], 1, 14, hidden_size=5, activations=[name])
    (found,) = results_of(model, [x, w, r])
    h, steps = np.zeros((2, 5)), []
    for step in x.astype(float):
        h = ACTIVATIONS[name](step @ w[0].T.astype(float) + h @ r[0].T.astype(float))
        steps.append(h[None])
    np.testing.assert_allclose(found, np.stack(steps), rtol=1e-4, atol=1e-4)
