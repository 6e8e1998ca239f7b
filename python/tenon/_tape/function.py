"""autograd.Function: operators whose forward and backward are written in Python."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon import _C
from tenon._C import FunctionCtx
from tenon._tensor.print import package_name

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "once_differentiable",
]


class BackwardCFunction(FunctionCtx):
    """Base of the classes of ctx objects, which are also the nodes of Functions in the graph."""

    _forward_cls: type


class FunctionMeta(type):
    """Gives every Function the class of its ctx: SquareBackward for Square."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        names = {"_forward_cls": cls, "__module__": f"{package_name()}.autograd.function"}
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), names)
        super().__init__(name, bases, attrs)


class _Unwritten:
    """What a Function has where its class does not say it."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def jvp(ctx: FunctionCtx, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    vjp = backward


class Function(_Unwritten, metaclass=FunctionMeta):
    """Base of operators written in Python.

    A subclass has the static methods `forward(ctx, *args)` and `backward(ctx, *grads)`, or
    `forward(*args)` and `setup_context(ctx, inputs, output)`. Call it through `apply`.
    """

    setup_context: Callable[..., None] | None = None
    generate_vmap_rule = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. "
            "Please use new-style autograd function with static forward method. "
            "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    if TYPE_CHECKING:
        # Any functions will do in a subclass.
        forward: Callable[..., Any]
        backward: Callable[..., Any]

    @classmethod
    def _run_backward(cls, ctx: FunctionCtx, *grads: Any) -> Any:
        """What the graph calls: backward, or vjp, which is another name for it."""
        if pushing.on and "_arguments" in ctx.__dict__:
            return _transposed(cls, ctx, grads)
        if cls.vjp is Function.vjp:
            return cls.backward(ctx, *grads)
        if cls.backward is not Function.backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. "
                "You should only implement one of them."
            )
        return cls.vjp(ctx, *grads)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward and records the call."""
        if _C._program_is_recording():
            from tenon._program import foreign

            if foreign.is_open():
                return foreign.whole(cls.apply, args, kwargs)
            foreign.state.gradients += 1
        if kwargs or (cls.setup_context is not None and _has_defaults(cls.forward)):
            own = () if cls.setup_context is not None else (None,)
            bound = inspect.signature(cls.forward).bind(*own, *args, **kwargs)
            bound.apply_defaults()
            args = bound.args[len(own) :]
        if "tenon._transform.vmap" in sys.modules:
            from tenon._transform import vmap

            if vmap.any_batched(args):
                rule = getattr(cls, "vmap", None)
                if rule is not None and cls.generate_vmap_rule:
                    raise RuntimeError(
                        f"You tried to vmap over {cls.__name__}, but it has both "
                        "generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
                        "generate_vmap_rule=False or delete the overridden vmap staticmethod to "
                        "avoid ambiguity."
                    )
                return vmap.run_own(cls.__name__, cls.apply, rule, args)
        if "tenon.autograd.forward_ad" in sys.modules:
            from tenon.autograd import forward_ad

            if forward_ad.any_dual(args):
                return forward_ad.apply_function(cls, args)
        if cls.jvp is not Function.jvp and _C._transform_runs():
            return _C._apply(cls, args, functools.partial(_note_arguments, args))
        return _C._apply(cls, args)


class _Pushing(threading.local):
    on = False


# Whether tangents are pushed by the pass that runs: func.jvp takes the derivatives of gradients by
# their seeds, so that a Function's own jvp comes in as the transpose of its transpose.
pushing = _Pushing()


def _note_arguments(args: tuple[Any, ...], ctx: Any, *unused: Any) -> None:
    ctx._arguments = [
        (a.shape, a.dtype, a.device) if isinstance(a, _C.Tensor) else None for a in args
    ]


def _transposed(cls: Any, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of a call's arguments by its jvp, which is linear in the tangents."""
    import tenon

    seeds, tangents = [], []
    with _C.enable_grad():
        for kind, needed in zip(ctx._arguments, ctx.needs_input_grad, strict=True):
            fills = kind is not None and (needed or ctx.materialize_grads)
            make = tenon.ones if needed else tenon.zeros
            seed = make(kind[0], dtype=kind[1], device=kind[2]) if fills else None
            seeds.append(seed.requires_grad_() if needed else None)
            tangents.append(seed.clone() if needed else seed)  # jvp may write to it
        pushed = ctx._pushing(functools.partial(cls.jvp, ctx, *tangents))
    outs = [(o, g) for o, g in zip(pushed if isinstance(pushed, tuple) else (pushed,), grads)
            if isinstance(o, _C.Tensor) and g is not None]  # fmt: skip
    for o, _ in outs:
        if not o.requires_grad and o.any():
            raise NotImplementedError(
                f"func.jvp: the jvp of {cls.__name__} has to be made of differentiable operators"
            )
    outs = [(o, g) for o, g in outs if o.requires_grad]
    wanted = tuple(s for s in seeds if s is not None)
    found: Any = [None] * len(wanted)
    if outs:
        roots, given = zip(*outs, strict=True)
        found = tenon.autograd._grad(roots, wanted, given, True, True, True)
    rest = iter(found)
    return tuple(None if s is None else next(rest) for s in seeds)


@functools.cache
def _has_defaults(forward: Callable[..., Any]) -> bool:
    """Whether arguments may be left out, which setup_context gets all the same."""
    parameters = inspect.signature(forward).parameters.values()
    return any(p.default is not p.empty for p in parameters)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that cannot itself be differentiated: doing so raises."""

    @functools.wraps(fn)
    def wrapper(ctx: FunctionCtx, *grads: Any) -> Any:
        recording = _C.is_grad_enabled()
        with _C.no_grad():
            results = fn(ctx, *grads)
        wanted = any(isinstance(g, _C.Tensor) and g.requires_grad for g in grads)
        if not recording or not wanted:
            return results
        single = not isinstance(results, tuple)
        marked = [_Refuse.apply(r, *_roots(grads)) if isinstance(r, _C.Tensor) else r
                  for r in ((results,) if single else results)]  # fmt: skip
        return marked[0] if single else tuple(marked)

    return wrapper


def _roots(grads: tuple[Any, ...]) -> list[Any]:
    return [g for g in grads if isinstance(g, _C.Tensor) and g.requires_grad]


class _Refuse(Function):
    """Passes a tensor on; differentiating it fails."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Any, *roots: Any) -> Any:
        ctx.count = 1 + len(roots)
        return value.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
