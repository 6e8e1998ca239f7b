"""Control flow on values of tensors as functions, which programs can keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import _C
from tenon.utils import _pytree


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """true_fn(*operands) where pred holds, else false_fn(*operands).

    While a program is recorded both are called, and pred selects among their results: they must
    agree in structure, shapes and dtypes, and only compute.
    """
    if isinstance(pred, tenon.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"cond: pred must have one element, not {pred.numel()}")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond: operands is a tuple, not {type(operands).__name__}")
    if not isinstance(pred, tenon.Tensor) or not _C._program_is_recording():
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    yes, spec = _pytree.tree_flatten(true_fn(*_taken_if(pred, operands)))
    no, other = _pytree.tree_flatten(false_fn(*_taken_if(~pred.bool(), operands)))
    if spec != other:
        raise RuntimeError("cond: true_fn and false_fn return different structures")
    return spec.unflatten([_select(pred, a, b) for a, b in zip(yes, no, strict=True)])


def _taken_if(pred: Any, operands: Any) -> Any:
    """The operands, to which no gradient comes where pred does not hold: that of a branch which is
    not taken may be none (sqrt below 0), and 0 times it would be NaN."""
    if not tenon.is_grad_enabled():
        return operands
    here = pred.reshape(()).bool()

    def one(t: Any) -> Any:
        if not (t.is_floating_point() or t.is_complex()):
            return t
        return tenon.where(here, t, t.detach())

    return _pytree.tree_map_only(tenon.Tensor, one, operands)


def _select(pred: Any, yes: Any, no: Any) -> Any:
    if not isinstance(yes, tenon.Tensor) or not isinstance(no, tenon.Tensor):
        if yes is no or (type(yes) is type(no) and yes == no):
            return yes
        raise RuntimeError("cond: true_fn and false_fn return different values that are no tensors")
    if yes.shape != no.shape or yes.dtype != no.dtype:
        raise RuntimeError(
            f"cond: true_fn returns {yes.dtype} {list(yes.shape)}, false_fn {no.dtype} "
            f"{list(no.shape)}"
        )
    return tenon.where(pred.reshape(()).bool(), yes, no)
