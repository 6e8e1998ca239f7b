"""Control flow on values of tensors as functions, which programs can keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import _C
from tenon._tape.call_modes import TorchFunctionMode
from tenon.utils import _pytree
from tenon.utils.weak import WeakTensorKeyDictionary


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """true_fn(*operands) where pred holds, else false_fn(*operands).

    While a program is recorded both are called, and pred selects among their results: they must
    agree in structure, shapes and dtypes, and only compute. RuntimeError if they do not, or if one
    writes to a tensor that it has not made.
    """
    if isinstance(pred, tenon.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"cond: pred must have one element, not {pred.numel()}")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond: operands is a tuple, not {type(operands).__name__}")
    if not isinstance(pred, tenon.Tensor) or not _C._program_is_recording():
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    here = pred.reshape(()).bool()
    yes, spec = _pytree.tree_flatten(_Branch("true_fn", here).run(true_fn, operands))
    no, other = _pytree.tree_flatten(_Branch("false_fn", ~here).run(false_fn, operands))
    if spec != other:
        raise RuntimeError("cond: true_fn and false_fn return different structures")
    return spec.unflatten([_select(here, a, b) for a, b in zip(yes, no, strict=True)])


class _Branch(TorchFunctionMode):
    """One way of a recorded `cond`, which no gradient leaves where it is not taken: that of such a
    way may be none (sqrt below 0), and 0 times it would be NaN. What comes in, as an operand or
    because the function captures it, is cut off there when an operator first takes it."""

    def __init__(self, name: str, here: Any) -> None:
        self.name, self.here = name, here
        self.made: Any = WeakTensorKeyDictionary()
        self.came_in: dict[int, tuple[Any, Any, int]] = {}  # what stands for it, and its version

    def run(self, function: Callable[..., Any], operands: Any) -> Any:
        with self:
            result = function(*operands)
        if any(_C._program_version(t) != version for _, t, version in self.came_in.values()):
            raise RuntimeError(
                f"cond: {self.name} writes to a tensor that it has not made. While a program is "
                "recorded both ways are called: return what is new instead"
            )
        return result

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") == "__get__":  # an attribute: no tensor, or a view
            return func(*args)
        args, kwargs = _pytree.tree_map_only(tenon.Tensor, self._let_in, (args, kwargs or {}))
        result = func(*args, **kwargs)
        _pytree.tree_map_only(tenon.Tensor, self._keep, result)
        return result

    def _keep(self, t: Any) -> None:
        self.made[t] = True

    def _let_in(self, t: Any) -> Any:
        if t in self.made:
            return t
        if id(t) not in self.came_in:
            cut = tenon.is_grad_enabled() and (t.is_floating_point() or t.is_complex())
            stand_in = tenon.where(self.here, t, t.detach()) if cut else t
            self.came_in[id(t)] = (t, stand_in, _C._program_version(stand_in))
        return self.came_in[id(t)][1]


def _select(here: Any, yes: Any, no: Any) -> Any:
    if not isinstance(yes, tenon.Tensor) or not isinstance(no, tenon.Tensor):
        if yes is no or (type(yes) is type(no) and yes == no):
            return yes
        raise RuntimeError("cond: true_fn and false_fn return different values that are no tensors")
    if yes.shape != no.shape or yes.dtype != no.dtype:
        raise RuntimeError(
            f"cond: true_fn returns {yes.dtype} {list(yes.shape)}, false_fn {no.dtype} "
            f"{list(no.shape)}"
        )
    return tenon.where(here, yes, no)
