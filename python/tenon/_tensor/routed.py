"""Classes of tensors that stand for something else: every method goes to one function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tenon._C import Tensor

# What every object needs to be one, and what its own memory tells.
_ALWAYS = frozenset({
    "__class__", "__class_getitem__", "__delattr__", "__dir__", "__getattribute__", "__init__",
    "__init_subclass__", "__new__", "__setattr__", "__sizeof__", "__subclasshook__",
    "__torch_function__", "as_subclass", "element_size", "get_device",
})  # fmt: skip
# What an object with the sizes of what it stands for tells by itself.
SIZES = frozenset({
    "__len__", "dim", "is_contiguous", "ndimension", "nelement", "numel", "size", "stride",
})  # fmt: skip
# ... and with its dtype.
KINDS = frozenset({"is_complex", "is_floating_point", "is_signed"})


def route_methods(
    cls: type[Tensor],
    run: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any],
    own: Iterable[str] = (),
) -> None:
    """Methods of Tensor call `run(method, args, kwargs)`, but for those that the class defines and
    those named in `own`. Operators called as functions arrive through `__torch_function__`;
    methods of the class come here without that."""
    kept = _ALWAYS | set(own) | set(vars(cls))
    for name in dir(Tensor):
        func = getattr(Tensor, name)
        if callable(func) and name not in kept:
            setattr(cls, name, _routed(func, run))


def _routed(func: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(func, (self, *args), kwargs)

    return method
