"""Classes of operators that packages import from `torch._ops`."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import tenon
from tenon import Tensor, overrides
from tenon._tensor.aten import OpOverload, OpOverloadPacket
from tenon._torch._C_names import DispatchKey, _AutoDispatchBelowAutograd
from tenon.utils import _python_dispatch, _pytree

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket"]

_F = TypeVar("_F", bound=Callable[..., Any])
_KERNELS = {  # of devices, and those for Autograd there
    "cpu": (DispatchKey.CPU, DispatchKey.AutogradCPU),
    "cuda": (DispatchKey.CUDA, DispatchKey.AutogradCUDA),
    "meta": (DispatchKey.Meta, DispatchKey.AutogradMeta),
}
_COMPOSITE = (DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeImplicitAutograd)


class HigherOrderOperator(abc.ABC):
    """An operator whose arguments are functions, of which a package makes a class: its
    implementations in Python for kinds of kernels, for modes and for classes of tensors.

    A call with tensors goes to the implementation for Autograd; called from within that, to the
    mode that is set, else to a tensor's class with `__torch_dispatch__`, else to the implementation
    for the device or for all of them.
    """

    def __init__(self, name: str, *, cacheable: bool = False, **options: Any) -> None:
        self._name = self.__name__ = name
        self._cacheable = cacheable
        self.py_kernels: dict[Any, Any] = {}
        self._passed: set[DispatchKey] = set()

    @property
    def namespace(self) -> str:
        """Where PyTorch has such operators."""
        return "higher_order"

    def name(self) -> str:
        """Its name."""
        return self._name

    def cacheable(self) -> bool:
        """What the class said when it was made."""
        return self._cacheable

    def py_impl(self, k: Any) -> Callable[[_F], _F]:
        """A decorator: the implementation for a kind of kernels, a mode or a class of tensors."""

        def keep(function: _F) -> _F:
            if k in self.py_kernels:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self}")
            self.py_kernels[k] = function
            self._passed.discard(k)
            return function

        return keep

    def py_autograd_impl(self, fn: _F) -> _F:
        """As py_impl(DispatchKey.Autograd), for calls in which a tensor requires a gradient."""

        def run(*args: Any, **kwargs: Any) -> Any:
            tensors = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            if tenon.is_grad_enabled() and any(t.requires_grad for t in tensors):
                return fn(*args, **kwargs)
            with _AutoDispatchBelowAutograd():
                return self(*args, **kwargs)

        self.py_impl(DispatchKey.Autograd)(run)
        return fn

    def py_functionalize_impl(self, fn: _F) -> _F:
        """The implementation for programs without writes, by which nothing is called here."""
        return self.py_impl(DispatchKey.Functionalize)(fn)

    def fallthrough(self, dispatch_key: DispatchKey) -> None:
        """Calls go past a kind of kernels."""
        self._passed.add(dispatch_key)

    def _by_mode(self, args: Any, kwargs: Any) -> Any:
        mode = _python_dispatch._get_current_dispatch_mode()
        if mode is None:
            return NotImplemented
        if type(mode) in self.py_kernels:
            with _python_dispatch._pop_mode_temporarily() as mode:
                return self.py_kernels[type(mode)](mode, *args, **kwargs)
        if not getattr(mode, "supports_higher_order_operators", False):
            raise NotImplementedError(
                f"There was no rule registered for HigherOrderOperator {self._name} and mode "
                f"{mode}. Hint: set {mode}'s supports_higher_order_operators to True."
            )
        with _python_dispatch._pop_mode_temporarily() as mode:
            return mode.__torch_dispatch__(self, [], args, kwargs)

    def _by_class(self, tensors: list[Tensor], args: Any, kwargs: Any) -> Any:
        for kind in {type(t): None for t in tensors if "__torch_dispatch__" in dir(type(t))}:
            if kind in self.py_kernels:
                found = self.py_kernels[kind](*args, **kwargs)
                if found is not NotImplemented:
                    return found
        return NotImplemented

    def _kernel(self, keys: list[DispatchKey]) -> Any:
        for key in keys:
            if key in self.py_kernels:
                return self.py_kernels[key]
        raise NotImplementedError(
            f"could not find kernel for HigherOrderOperator {self._name} at dispatch key {keys[0]}"
        )

    @abc.abstractmethod
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves = tuple(_pytree.tree_leaves((args, kwargs)))
        if overrides.has_torch_function(leaves):
            return overrides.handle_torch_function(self, leaves, *args, **kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        kinds = {t.device.type: None for t in tensors}
        above = [_KERNELS[kind][1] for kind in kinds if kind in _KERNELS]
        above = [key for key in above if key not in self._passed]
        if above and not _AutoDispatchBelowAutograd.inside():
            above += [DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd]
            return self._kernel(above)(*args, **kwargs)
        found = self._by_mode(args, kwargs)
        if found is NotImplemented:
            found = self._by_class(tensors, args, kwargs)
        if found is not NotImplemented:
            return found
        below = [_KERNELS[kind][0] for kind in kinds if kind in _KERNELS]
        return self._kernel([*below, *_COMPOSITE])(*args, **kwargs)
