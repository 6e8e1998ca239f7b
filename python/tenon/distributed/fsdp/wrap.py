"""Which modules of a model become units of their own: policies, and wrapping by them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tenon
from tenon.distributed.fsdp._unit import cast
from tenon.nn import MultiheadAttention
from tenon.nn.modules.container import ModuleDict, ModuleList
from tenon.nn.modules.module import Module
from tenon.nn.parallel.distributed import _find_tensors

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap",
    "lambda_auto_wrap_policy", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
    "wrap",
]  # fmt: skip


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module is one."""
    return True


class _Policy(ABC):
    """Says of each module whether it is a unit, and with which arguments."""

    @abstractmethod
    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        """The modules that are units, with the arguments of each."""


class ModuleWrapPolicy(_Policy):
    """Modules of given classes are units."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = set(module_classes)
        self._module_classes_str = str(self._module_classes)

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        classes = tuple(self._module_classes)
        return {
            m: dict(root_kwargs)
            for m in root_module.modules()
            if m not in ignored_modules and isinstance(m, classes)
        }

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return _module_wrap_policy(module, recurse, -1, self._module_classes)

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes_str})"


class CustomPolicy(_Policy):
    """A function says of each module: False, True, or the arguments of its own."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]
    ) -> dict[Module, dict[str, Any]]:
        found = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            said = self._lambda_fn(module)
            if not isinstance(said, (bool, dict)):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return False/True or a kwarg "
                    f"dict, but it returned {said}"
                )
            if said is not False:
                found[module] = {**root_kwargs, **(said if isinstance(said, dict) else {})}
        return found


# ---- Policies that are functions -----------------------------------------------------------------


def _module_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, module_classes: Iterable[type[Module]]
) -> bool:
    return recurse or isinstance(module, tuple(module_classes))


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """The modules of which a function says so are units."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type[Module]],
) -> bool:
    """The layers of a transformer are units."""
    return _module_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls)


def _or_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]
) -> bool:
    """Those of any policy."""
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
               for p in policies)  # fmt: skip


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Modules with at least min_num_params elements that no unit inside them has are units."""
    leaves = size_based_auto_wrap_policy.FORCE_LEAF_MODULES
    excluded = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES
    leaves = leaves if force_leaf_modules is None else force_leaf_modules
    excluded = excluded if exclude_wrap_modules is None else exclude_wrap_modules
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(leaves))
    return large and not isinstance(module, tuple(excluded))


# Attention works on the weights of its parts.
size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore


# ---- Wrapping ------------------------------------------------------------------------------------


class _Wrapping:
    """What enable_wrap has said."""

    cls: Any = None
    options: dict[str, Any] = {}


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Inside it, wrap(module) is wrapper_cls(module, **wrapper_kwargs)."""
    before = _Wrapping.cls, _Wrapping.options
    _Wrapping.cls, _Wrapping.options = wrapper_cls, wrapper_kwargs
    try:
        yield
    finally:
        _Wrapping.cls, _Wrapping.options = before


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module, wrapped where enable_wrap says so."""
    if _Wrapping.cls is None:
        return module
    return _wrap(module, _Wrapping.cls, **{**_Wrapping.options, **wrap_overrides})


def _wrap(module: Module, wrapper_cls: Any, **kwargs: Any) -> Module:
    own = getattr(module, "_wrap_overrides", {})
    return wrapper_cls(module, **{**kwargs, **own})


def _post_order(
    module: Module, seen: set[Module]
) -> Iterator[tuple[Module, str, Module]]:  # fmt: skip
    for name, child in module.named_children():
        if child not in seen:
            seen.add(child)
            yield from _post_order(child, seen)
            yield module, name, child


def _wrap_by_policy(
    root: Module, policy: Any, ignored: set[Module], wrapper: Callable[..., Module],
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Wraps the modules inside root that a policy chooses, the innermost first. Those that mixed
    precision leaves out are units of their own, without it."""
    mixed = options.get("mixed_precision")
    exact = tuple(mixed._module_classes_to_ignore) if mixed is not None else ()
    for module in root.modules() if exact else ():
        if isinstance(module, exact) and module not in ignored:
            _keep_precision(module)
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(root, ignored, options)
        for module in root.modules():
            if isinstance(module, exact) and module not in ignored:
                chosen[module] = {**chosen.get(module, options), "mixed_precision": None}
        for parent, name, child in list(_post_order(root, {root})):
            if child in chosen:
                setattr(parent, name, wrapper(child, **chosen[child]))
        return

    def unit(child: Module) -> Module:  # some of its options have names of arguments below
        if isinstance(child, exact):
            return wrapper(child, **{**options, "mixed_precision": None})
        return wrapper(child, **options)

    def chooses(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        own = policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
        return bool(own) or (bool(exact) and recurse) or isinstance(module, exact)

    _recursive_wrap(root, chooses, unit, ignored, set(), only_wrap_children=True)


def _keep_precision(module: Module) -> None:
    """The module computes in float32, and its results have the dtype of what it was given."""
    given: list[Any] = []

    def before(module: Module, args: Any) -> Any:
        given[:] = [t.dtype for t in _find_tensors(args) if t.dtype.is_floating_point][:1]
        return cast(args, tenon.float32)

    def after(module: Module, args: Any, output: Any) -> Any:
        return cast(output, given[0]) if given else output

    module.register_forward_pre_hook(before, prepend=True)
    module.register_forward_hook(after)


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Any,
    ignored_modules: set[Module],
    ignored_params: set[Any],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """(the module, wrapped by a policy that is a function; how many elements its units have)"""
    size = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=size):
        return module, 0
    inside = 0
    for name, child in module.named_children():
        if child in ignored_modules:
            continue
        wrapped, elements = _recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
        )
        setattr(module, name, wrapped)
        inside += elements
    rest = size - inside
    if not only_wrap_children and auto_wrap_policy(
        module=module, recurse=False, nonwrapped_numel=rest
    ):
        return _wrap(module, wrapper_cls, **kwargs), size
    return module, inside
