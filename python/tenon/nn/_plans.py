"""What the forward of common modules comes to when nothing about them was changed: one operator of
their own attributes, which the extension then calls itself (module_call.c)."""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._C import _nn, _ops
from tenon.nn import functional as F
from tenon.nn.modules.activation import ReLU
from tenon.nn.modules.container import Sequential
from tenon.nn.modules.conv import Conv2d
from tenon.nn.modules.dropout import Dropout
from tenon.nn.modules.linear import Linear
from tenon.nn.modules.normalization import LayerNorm
from tenon.nn.modules.sparse import Embedding

INPUT = None  # among the names of attributes
ABSENT = ...  # as the value of an attribute


def _plan(kind: Any, function: str, op: Any, args: tuple[Any, ...], **when: Any) -> None:
    """forward of `kind` calls the function of nn.functional, which calls `op` with `args` while
    the attributes in `when` have those values."""
    known = getattr(F, function)
    _C._plan_module(kind, kind.forward, F.__dict__, function, known, op, args, when)


_plan(Linear, "linear", _nn.linear, (INPUT, "weight", "bias"))
_plan(ReLU, "relu", _ops.relu, (INPUT,), inplace=False)
_plan(
    LayerNorm, "layer_norm", _nn.layer_norm,
    (INPUT, "normalized_shape", "weight", "bias", "eps"),
)  # fmt: skip
_plan(
    Embedding, "embedding", _ops.embedding, ("weight", INPUT),
    padding_idx=None, max_norm=None, scale_grad_by_freq=False, sparse=False,
)  # fmt: skip
_plan(Dropout, "dropout", _ops.dropout, (INPUT, "p", "training"), training=True, inplace=False)
_plan(
    Conv2d, "conv2d", _nn.conv2d,
    (INPUT, "weight", "bias", "stride", "padding", "dilation", "groups"),
    padding_mode="zeros", _conv_forward=ABSENT,
)  # fmt: skip
_C._plan_module(Sequential, Sequential.forward, {}, "", None, None, (), {})
