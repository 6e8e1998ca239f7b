"""Linear layers together with the GELU behind them, on devices that compute both in one step.

`run` calls modules one after the other, as Sequential does. Where a Linear, a GELU("tanh") and
perhaps another Linear follow each other, nobody looks at what passes between them (no hooks, no
subclasses, no forward of their own), and the device has a kernel for it, they are one operator.
Only in half precision: the libraries' tanh may be less exact than a float32 is. ReLU is never
joined, since the libraries' makes 0 of NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon._plugin import native
from tenon.nn import functional as F
from tenon.nn.modules._calls import CallMixin, is_hooked
from tenon.nn.modules.activation import GELU
from tenon.nn.modules.dropout import Dropout
from tenon.nn.modules.linear import Linear
from tenon.nn.parameter import Parameter

_CALL = CallMixin.__call__
_FORWARDS = {kind: kind.forward for kind in (Linear, GELU, Dropout)}
_DTYPES = {tenon.float16: "float16", tenon.bfloat16: "bfloat16"}


@functools.cache
def _has_kernel(device: str, dtype: str) -> bool:
    return native.Library().way("_linear_gelu", device, dtype) == "kernel"


def may_serve(input: Any) -> bool:
    """Whether `run` may do more for this input than to call the modules."""
    return type(input) is Tensor and not input.is_cpu


def _is_served(input: Any) -> bool:
    """Whether the device has a kernel for this input's dtype, or for autocast's."""
    if not may_serve(input) or not input.is_floating_point():
        return False
    device, dtype = input.device.type, input.dtype
    if tenon.is_autocast_enabled(device):
        dtype = tenon.get_autocast_dtype(device)
    return dtype in _DTYPES and _has_kernel(device, _DTYPES[dtype])


def _is_plain(module: Any, kind: type) -> bool:
    """Whether a call of the module is the forward of `kind` and nothing else."""
    return (
        type(module) is kind
        and kind.forward is _FORWARDS[kind]
        and kind.__call__ is _CALL
        and "forward" not in module.__dict__
        and not is_hooked(module)
    )


def _is_linear(module: Any) -> bool:
    return _is_plain(module, Linear) and type(module.weight) in (Parameter, Tensor)


def _is_gelu(step: Any) -> bool:
    """Whether it is the tanh approximation."""
    if isinstance(step, functools.partial):
        return step.func is F.gelu and not step.args and step.keywords == {"approximate": "tanh"}
    return _is_plain(step, GELU) and step.approximate == "tanh"


def _is_idle(step: Any) -> bool:
    return _is_plain(step, Dropout) and (not step.training or step.p == 0)


def _joined(steps: list[Callable[[Any], Any]], input: Any) -> tuple[int, Any]:
    """What one or more of the first steps make of the input, and how many these are."""
    first = steps[0]
    pair = len(steps) > 1 and _is_linear(first) and _is_gelu(steps[1])
    if not pair or not _is_served(input):
        return 1, first(input)
    tensors = [t for t in (input, first.weight, first.bias) if t is not None]
    keep = tenon.is_grad_enabled() and any(t.requires_grad for t in tensors)
    last = 3 if len(steps) > 3 and _is_idle(steps[2]) else 2
    if keep and len(steps) > last and _is_linear(steps[last]):
        both = (first.weight, first.bias, steps[last].weight, steps[last].bias)
        return last + 1, _nn._linear_gelu_linear(input, *both)[0]
    return 2, _nn._linear_gelu(input, first.weight, first.bias, keep)[0]


def run(steps: Iterable[Callable[[Any], Any]], input: Any) -> Any:
    """Calls the steps one after the other, those that belong together at once."""
    left = list(steps)
    while left:
        n, input = _joined(left, input)
        del left[:n]
    return input
