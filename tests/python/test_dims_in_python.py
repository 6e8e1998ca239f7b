"""Dimensions that are not there, in functions that work on them in Python: an error, never another
dimension that happens to be the remainder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon._tensor.dims import wrapped_dim


def test_wrapped() -> None:
    assert [wrapped_dim(d, 3) for d in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    assert wrapped_dim(-1, 0) == wrapped_dim(0, 0) == 0
    for dim, rank in ((3, 3), (-4, 3), (1, 0), (2**70, 3)):
        with pytest.raises(IndexError, match=f"but got {dim}"):
            wrapped_dim(dim, rank)
    for dim in (True, 1.0, "0", None):
        with pytest.raises(TypeError):
            wrapped_dim(dim, 3)


NORMS = [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm]


@pytest.mark.parametrize("norm", NORMS)
def test_weight_norm(norm: Callable[..., Any]) -> None:
    """PyTorch's -1 means all dimensions, as None does."""
    for dim, length in ((0, (4, 1)), (1, (1, 3)), (-2, (4, 1)), (-1, ()), (None, ())):
        layer = norm(nn.Linear(3, 4), dim=dim)
        assert length in [tuple(p.shape) for p in layer.parameters()], dim
    for dim in (2, -3, 7, True, 0.5):
        layer = nn.Linear(3, 4)
        with pytest.raises((IndexError, TypeError)):
            norm(layer, dim=dim)
        assert layer(tn.ones(3)).shape == (4,) and len(list(layer.parameters())) == 2


def test_a_parameter_that_is_none() -> None:
    layer = nn.BatchNorm1d(2)
    for norm in (nn.utils.weight_norm, nn.utils.spectral_norm):
        with pytest.raises(
            KeyError, match="BatchNorm1d has no parameter 'running_mean' of its own"
        ):
            norm(layer, "running_mean")
    assert layer(tn.ones(3, 2)).shape == (3, 2)


def test_others() -> None:
    nested = tn.nested.nested_tensor([tn.ones(2, 3), tn.ones(1, 3)])
    assert len(nested.unbind(-3)) == 2
    with pytest.raises(IndexError):
        nested.unbind(3)
    with pytest.raises(IndexError):
        tn.vmap(lambda x: x.permute(2, 1))(tn.ones(4, 2, 3))
    with pytest.raises(IndexError):
        tn.ops.aten.slice(tn.ones(2, 3), 2, 0, 1)


# Operators of ONNX with an axis, and its inputs beside the first.
SEQUENCE = "SequenceErase"
AXES: dict[str, tuple[dict[str, Any], list[np.ndarray[Any, Any]]]] = {
    "Unsqueeze": ({}, [np.array([9])]),
    "Flatten": ({"axis": 9}, []),
    "Gather": ({"axis": 9}, [np.array([0])]),
    "Unique": ({"axis": 9}, []),
    "Pad": ({}, [np.array([1, 1]), np.array(0.0, np.float32), np.array([9])]),
    "ReduceSum": ({}, [np.array([9])]),
    "CenterCropPad": ({"axes": [9]}, [np.array([1])]),
    "LayerNormalization": ({"axis": 9}, [np.ones(3, np.float32)]),
    "RMSNormalization": ({"axis": 9}, [np.ones(3, np.float32)]),
    "Softmax": ({"axis": 9}, []),
    "Concat": ({"axis": 9}, []),
    "ArgMax": ({"axis": 9}, []),
    "CumSum": ({}, [np.array(9)]),
    "Split": ({"axis": 9, "num_outputs": 2}, []),
    "OneHot": ({"axis": 9}, [np.array(4), np.array([0, 1])]),
    "QuantizeLinear": ({"axis": 9}, [np.ones(3, np.float32), np.ones(3, np.uint8)]),
}


@pytest.mark.parametrize("opset", [11, 23])
@pytest.mark.parametrize("op", AXES)
def test_axes_in_files(op: str, opset: int, tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    attributes, inputs = AXES[op]
    names = [f"w{i}" for i in range(len(inputs))]
    values = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, ["x", *names], ["y"], **attributes)], "g",
        [values("x", onnx.TensorProto.INT64 if op == "OneHot" else onnx.TensorProto.FLOAT, [2, 3])],
        [values("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, n) for n, w in zip(names, inputs, strict=True)],
    )  # fmt: skip
    path = tmp_path / "a.onnx"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    path.write_bytes(model.SerializeToString())
    x = tn.ones(2, 3, dtype=tn.int64 if op == "OneHot" else tn.float32)
    with pytest.raises(Exception, match=r"range|axis|dimension|not implemented|opset|no dim"):
        tn.onnx.load(path)(x)
