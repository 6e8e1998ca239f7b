"""Calling a module: the short way when nobody hooked in, and the long way with hooks."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from tenon import _C, Tensor
from tenon._tape.hooks import BackwardHook, RemovableHandle, add_hook

_global_forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_backward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
# Every global hook leaves its id here too, so that a call asks one question about all of them.
_global_any: OrderedDict[int, bool] = OrderedDict()
_global_is_full_backward_hook: bool | None = None

_MIXED_BACKWARD = (
    "Cannot use both regular backward hooks and full backward hooks on a {}. "
    "Please use only one of them."
)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, args) runs before the forward of every module."""
    return add_hook(_global_forward_pre_hooks, hook, _global_any)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """hook(module, args, output) runs after the forward of every module."""
    extra = [_global_any]
    extra += [_global_forward_hooks_with_kwargs] if with_kwargs else []
    extra += [_global_forward_hooks_always_called] if always_call else []
    return add_hook(_global_forward_hooks, hook, tuple(extra))


def _register_global_backward(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED_BACKWARD.format("Module") + " (global)")
    _global_is_full_backward_hook = full
    return add_hook(_global_backward_hooks, hook, _global_any)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The older form of register_module_full_backward_hook."""
    return _register_global_backward(hook, False)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, grad_input, grad_output) runs in the backward of every module."""
    return _register_global_backward(hook, True)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, grad_output) runs before the backward of every module."""
    return add_hook(_global_backward_pre_hooks, hook, _global_any)


def _first_tensor(result: Any) -> Tensor:
    while not isinstance(result, Tensor):
        if isinstance(result, dict):
            result = next(v for v in result.values() if isinstance(v, Tensor))
        else:
            result = result[0]
    return result


_NOTED = (RuntimeError, ValueError, TypeError, IndexError)


def note_module(module: Any, err: BaseException) -> None:
    """Says in a note of an error which module it came up in, by its path from the outermost one
    that is being called. Each module that the error passes on its way out comes here. A lack of
    stack comes up in no module, and leaves none to look for it with."""
    if not isinstance(err, _NOTED) or isinstance(err, RecursionError):
        return
    own = err.__dict__
    known = own.get("_tenon_module")
    if known is None:
        path, text = "", f"{module._get_name()}({module.extra_repr()})"
        notes = own.setdefault("__notes__", [])
        place = len(notes)
        notes.append(f"in {text}")
    else:
        inner, path, text, place = known
        found = (name for name, child in module.named_modules() if id(child) == inner and name)
        step = next(found, None)
        if step is None:
            return
        path = f"{step}.{path}" if path else step
        own["__notes__"][place] = f"in module {path}, {text}, of {module._get_name()}"
    own["_tenon_module"] = (id(module), path, text, place)


def is_hooked(module: Any) -> bool:
    """Whether a call of the module runs hooks."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _global_any
    )


_C._module_hooks(_global_any)


def assign_hooks(name: str, hooks: OrderedDict[int, Any]) -> None:
    """Puts another dictionary in place of one of global hooks."""
    globals()[name] = hooks
    _global_any.clear()
    for table in (
        _global_forward_pre_hooks,
        _global_forward_hooks,
        _global_backward_pre_hooks,
        _global_backward_hooks,
    ):
        _global_any.update(dict.fromkeys(table, True))


class _CallSignature:
    """`inspect.signature` of a module, which a base class in C calls: any arguments, or those of a
    `__call__` of its own. Of a class it is that of the constructor."""

    def __get__(self, module: Any, cls: type) -> Any:
        if module is None:
            raise AttributeError("__signature__")
        import inspect

        if cls.__call__ is not _C._ModuleCall.__call__:
            return inspect.signature(cls.__call__.__get__(module))
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = zip(("args", "kwargs"), kinds, strict=True)
        return inspect.Signature([inspect.Parameter(name, kind) for name, kind in names])


class CallMixin(_C._ModuleCall):
    """The part of Module that is called: forward and the hooks around it.

    A call without hooks never comes here: the base class goes to forward itself.
    """

    __signature__ = _CallSignature()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def _call_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_hooked(self):
            return self._hooked_call(args, kwargs)
        return self.forward(*args, **kwargs)

    # ---- Registration ----------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """hook(module, args[, kwargs]) runs before forward and may return new arguments."""
        extra = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return add_hook(self._forward_pre_hooks, hook, extra, prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """hook(module, args[, kwargs], output) runs after forward and may return a new output.

        With always_call it also runs when forward raised.
        """
        extra = [self._forward_hooks_with_kwargs] if with_kwargs else []
        extra += [self._forward_hooks_always_called] if always_call else []
        return add_hook(self._forward_hooks, hook, tuple(extra), prepend)

    def _claim_backward_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(_MIXED_BACKWARD.format("single Module"))
        self._is_full_backward_hook = full

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older form: sees the gradients of the last operation only."""
        self._claim_backward_kind(False)
        return add_hook(self._backward_hooks, hook)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(module, grad_input, grad_output) runs in backward; may return a new grad_input."""
        self._claim_backward_kind(True)
        return add_hook(self._backward_hooks, hook, (), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(module, grad_output) runs before backward; may return a new grad_output."""
        return add_hook(self._backward_pre_hooks, hook, (), prepend)

    # ---- The long way ----------------------------------------------------------------------------

    def _backward_hook_lists(self) -> tuple[list[Callable[..., Any]], list[Callable]]:
        """Full and older backward hooks, the global ones first."""
        full: list[Callable[..., Any]] = []
        older: list[Callable[..., Any]] = []
        (full if _global_is_full_backward_hook else older).extend(_global_backward_hooks.values())
        (full if self._is_full_backward_hook else older).extend(self._backward_hooks.values())
        return full, older

    def _run_pre_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for key, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                answer = hook(self, args, kwargs)
                if answer is not None:
                    if not (isinstance(answer, tuple) and len(answer) == 2):
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple "
                            f"of (new_args, new_kwargs), but got {answer}."
                        )
                    args, kwargs = answer
            else:
                answer = hook(self, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _run_forward_hook(
        self, key: int, hook: Callable[..., Any], args: Any, kwargs: Any, result: Any
    ) -> Any:
        if key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
            answer = hook(self, args, kwargs, result)
        else:
            answer = hook(self, args, result)
        return result if answer is None else answer

    def _hooked_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = None
        done: set[int] = set()
        try:
            pre_backward = [
                *_global_backward_pre_hooks.values(),
                *self._backward_pre_hooks.values(),
            ]
            full, older = self._backward_hook_lists()
            args, kwargs = self._run_pre_hooks(args, kwargs)
            carrier = None
            if full or pre_backward:
                carrier = BackwardHook(self, full, pre_backward)
                args = carrier.setup_input(args)
            result = self.forward(*args, **kwargs)
            for key, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
                done.add(key)
                result = self._run_forward_hook(key, hook, args, kwargs, result)
            if carrier is not None:
                if not isinstance(result, (Tensor, tuple)):
                    warnings.warn(
                        "For backward hooks to be called, module output should be a Tensor or a "
                        f"tuple of Tensors but received {type(result)}",
                        stacklevel=3,
                    )
                result = carrier.setup_output(result)
            if older:
                node = _first_tensor(result).grad_fn
                if node is not None:
                    for hook in older:
                        node.register_hook(partial(hook, self))
            return result
        except Exception:
            self._run_always_called(done, args, kwargs, result)
            raise

    def _run_always_called(self, done: set[int], args: Any, kwargs: Any, result: Any) -> None:
        """After a failure: the hooks that asked to run in any case and have not run yet."""
        always = {**_global_forward_hooks_always_called, **self._forward_hooks_always_called}
        for key, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
            if key not in always or key in done:
                continue
            try:
                result = self._run_forward_hook(key, hook, args, kwargs, result)
            except Exception as error:
                kind = "global module" if key in _global_forward_hooks_always_called else "module"
                warnings.warn(
                    f"{kind} forward hook with ``always_call=True`` raised an exception "
                    f"that was silenced as another error was raised in forward: {error}",
                    stacklevel=4,
                )
