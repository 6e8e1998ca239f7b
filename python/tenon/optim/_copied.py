"""What optimizers that began as copies of PyTorch's import from `optim.optimizer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn.parameter import Parameter

_foreach_supported_types = [Tensor, Parameter]

_params_doc = "params (iterable): parameters, pairs of names and parameters, or groups of them\n"
_foreach_doc = "foreach (bool, optional): whether all parameters of a group are updated at once\n"
_fused_doc = "fused (bool, optional): whether one kernel updates all parameters of a group\n"
_maximize_doc = "maximize (bool, optional): whether the objective grows (default: False)\n"
_capturable_doc = "capturable (bool, optional): whether steps may be captured (default: False)\n"
_differentiable_doc = (
    "differentiable (bool, optional): whether gradients flow through steps (default: False)\n"
)


def _get_value(x: Any) -> Any:
    """The number in a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def _to_scalar(x: Any) -> Any:
    """A tensor of one element as one without dimensions."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _stack_if_compiling(x: Any) -> Any:
    """Numbers are numbers here, whether a step is compiled or not."""
    return x


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[Any], Any]:
    """A decorator that leaves a function as it is: steps need not be left out of compiling."""
    del single_tensor_fn
    return lambda fn: fn


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Complex parameters, and what belongs to them, as pairs of real numbers, in their lists."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = tenon.view_as_real(tensors[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> tenon.dtype:
    """The dtype in which steps are counted."""
    double = not is_fused and tenon.get_default_dtype() == tenon.float64
    return tenon.float64 if double else tenon.float32


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """RuntimeError where no kernel updates a parameter of that dtype and device."""
    devices = ["cpu"] if cuda_unsupported else ["cpu", "cuda"]
    if p.device.type not in devices or not p.is_floating_point():
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of supported "
            f"devices: {devices} but {p.dtype} and {p.device.type}"
        )
