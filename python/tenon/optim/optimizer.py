"""Optimizer: groups of parameters, their state, and how both are saved and loaded."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

import tenon
from tenon import Tensor
from tenon._device import capture
from tenon._tape import overridable
from tenon._tape.hooks import RemovableHandle, add_hook
from tenon.optim._copied import (  # noqa: F401 - copies of PyTorch's optimizers import them here
    _capturable_doc,
    _device_dtype_check_for_fused,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _foreach_doc,
    _foreach_supported_types,
    _fused_doc,
    _get_scalar_dtype,
    _get_value,
    _maximize_doc,
    _params_doc,
    _stack_if_compiling,
    _to_scalar,
    _view_as_real,
)


class _Required:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

# What an optimizer's first argument may be.
ParamsT: TypeAlias = (
    Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
)  # fmt: skip


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Which of PyTorch's forms of a step is meant: neither; a step is one call for all tensors."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The kinds of devices on which a step can be part of a recorded graph."""
    return ["cuda"]


_global_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs before the step of every optimizer."""
    return add_hook(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs after the step of every optimizer."""
    return add_hook(_global_post_hooks, hook)


def step_with_closure(step: Callable[[Any], None]) -> Callable[..., Any]:
    """Makes step(self, closure=None) of a function that updates: gradients off, closure's loss."""

    @functools.wraps(step)
    def run(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with tenon.enable_grad():
                loss = closure()
        with tenon.no_grad():
            step(self)
        return loss

    return run


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that records what it does where the optimizer is differentiable, and nothing else."""

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        with tenon.set_grad_enabled(args[0].defaults["differentiable"]):
            return step(*args, **kwargs)

    return run


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's step with the hooks around it."""

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        self._opt_called = True  # schedules warn when they are stepped first
        before = self.__dict__.get("_optimizer_step_pre_hooks")
        if before is None:  # a class around an optimizer, which has no hooks of its own
            return step(*args, **kwargs)
        if not (before or self._optimizer_step_post_hooks or _global_pre_hooks):
            if not _global_post_hooks:
                return step(*args, **kwargs)
        for hook in chain(_global_pre_hooks.values(), before.values()):
            answer = hook(self, args, kwargs)
            if answer is not None:
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {answer}."
                    )
                args, kwargs = answer
        result = step(*args, **kwargs)
        after = self._optimizer_step_post_hooks
        for hook in chain(after.values(), _global_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    run.hooked = True
    return run


def as_real(t: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers; others as they are."""
    return tenon.view_as_real(t) if t.is_complex() else t


def check_at_least(value: Any, name: str, low: float = 0.0) -> None:
    """ValueError unless value is one number, and >= low."""
    if isinstance(value, Tensor) and value.numel() != 1:
        short = "lr" if name == "learning rate" else name
        raise ValueError(f"Tensor {short} must be 1-element")
    if not low <= value:
        raise ValueError(f"Invalid {name}: {value}")


def rate_of(lr: float | Tensor, counts_there: bool = True) -> dict[str, Any]:
    """The learning rate as the steps' operators take it: a tensor on a device is read there.

    Where steps are counted, that needs their counters there, too.
    """
    if counts_there and isinstance(lr, Tensor) and lr.device.type != "cpu":
        return {"lr": 0.0, "rate": lr}
    return {"lr": float(lr), "rate": None}


def _need(given: dict[str, Any], *keys: str) -> None:
    """Raises where options or states lack what all have."""
    for key in keys:
        if key not in given:
            raise KeyError(f"an optimizer's parameter group or state needs {key!r}, and has none")


class Optimizer:
    """The base of all optimizers. Subclasses define step()."""

    # Keys of states that keep their dtype and are placed by __setstate__.
    _counters: tuple[str, ...] = ("step",)

    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = _with_hooks(step)

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hook_dicts()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be "
                f"an iterable of Tensors or dicts, but got {params.type()}"
            )
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _patch_step_function(self) -> None:
        """Gives a class hooks around its step, where it was set after the class was made."""
        step = type(self).step
        if not getattr(step, "hooked", False):
            type(self).step = _with_hooks(step)  # type: ignore[method-assign]

    def _make_hook_dicts(self) -> None:
        for name in (
            "_optimizer_step_pre_hooks",
            "_optimizer_step_post_hooks",
            "_optimizer_state_dict_pre_hooks",
            "_optimizer_state_dict_post_hooks",
            "_optimizer_load_state_dict_pre_hooks",
            "_optimizer_load_state_dict_post_hooks",
        ):
            self.__dict__.setdefault(name, OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hook_dicts()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # ---- Hooks -----------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs before step and may return new arguments."""
        return add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs after step."""
        return add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer) runs before the state is collected."""
        return add_hook(self._optimizer_state_dict_pre_hooks, hook, (), prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer, state_dict) runs afterwards and may return another dictionary."""
        return add_hook(self._optimizer_state_dict_post_hooks, hook, (), prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer, state_dict) runs before loading and may return another dictionary."""
        return add_hook(self._optimizer_load_state_dict_pre_hooks, hook, (), prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer) runs after loading."""
        return add_hook(self._optimizer_load_state_dict_post_hooks, hook, (), prepend)

    # ---- Saving and loading ----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups; parameters are numbered in the order of the groups."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups = []
        start = 0
        for group in self.param_groups:
            for i, param in enumerate(group["params"], start):
                number.setdefault(id(param), i)
            start += len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            (number[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            answer = hook(self, result)
            if answer is not None:
                result = answer
        return result

    def _state_like(self, param: Tensor, key: Any, value: Any) -> Any:
        """A copy of a loaded value, in the parameter's dtype and on its device but for counters."""
        if isinstance(value, Tensor):
            if key in self._counters:
                return value.clone()
            dtype = param.dtype if param.is_floating_point() else value.dtype
            return value.to(dtype=dtype, device=param.device, copy=True)
        if isinstance(value, dict):
            return {k: self._state_like(param, k, v) for k, v in value.items()}
        if isinstance(value, Iterable) and not isinstance(value, str):
            return type(value)(self._state_like(param, key, v) for v in value)
        return value

    def _check_new_state(self) -> None:
        """A replay would make the state of a parameter anew, where a capture has made it."""
        if capture.is_current_stream_capturing():
            raise RuntimeError(
                f"{type(self).__name__}: the state of a parameter cannot be made inside a capture; "
                "call step() once before it"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state and the options of a saved optimizer of the same shape."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            answer = hook(self, state_dict)
            if answer is not None:
                state_dict = answer
        _need(state_dict, "state", "param_groups")
        groups = self.param_groups
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for group, saved in zip(groups, saved_groups):
            _need(saved, "params")
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group "
                    "that doesn't match the size of optimizer's group"
                )
        numbers = chain.from_iterable(saved["params"] for saved in saved_groups)
        params = chain.from_iterable(group["params"] for group in groups)
        by_number = dict(zip(numbers, params))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                param = by_number[key]
                state[param] = self._state_like(param, key, value)
            else:
                state[key] = value
        merged = []
        for group, saved in zip(groups, saved_groups):
            saved["params"] = group["params"]
            if "param_names" in group and "param_names" not in saved:
                saved["param_names"] = group["param_names"]
            merged.append(saved)
        self.__setstate__({"state": state, "param_groups": merged})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # ---- Training --------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or fills them with zeros."""
        grads = []
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None
                elif param.grad is not None:
                    if param.grad.grad_fn is not None:
                        param.grad.detach_()
                    else:
                        param.grad.requires_grad_(False)
                    grads.append(param.grad)
        if grads:
            tenon._foreach_zero_(grads)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters by their gradients; closure computes the loss first."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _need(param_group, "params")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but "
                "the ordering of tensors in sets will change between runs. Please use a list "
                "instead."
            )
        params = list(params)
        named = [p for p in params if isinstance(p, tuple)]
        if named and len(named) != len(params):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        if named:
            param_group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        param_group["params"] = params
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, but one of the params is "
                    + type(param).__name__
                )
            if not self.defaults.get("differentiable") and not (
                param.is_leaf or getattr(param, "retains_grad", False)
            ):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization "
                    f"parameter {name}"
                )
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error",
                stacklevel=overridable.users_level(),
            )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        has_names = ["with" if "param_names" in g else "without" for g in self.param_groups]
        adds = "with" if "param_names" in param_group else "without"
        if has_names and adds != has_names[0]:
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{adds} names to the optimizer {has_names[0]} names"
            )
        self.param_groups.append(param_group)
