"""Parameters, buffers and submodules by their paths: `layer.0.weight`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon import Tensor
from tenon.nn.modules.module import Module

_MISSING = object()


def _checked(module: Module, name: str) -> None:
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')


def set_tensor(module: Module, name: str, tensor: Tensor | None) -> None:
    """Puts a tensor where a parameter, buffer or plain attribute of that name is."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Does so, and returns what was there: _MISSING for nothing, which also takes away."""
    _checked(module, name)
    if tensor is not _MISSING and not isinstance(tensor, Tensor | None):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    for table in (module._parameters, module._buffers):
        if name in table:
            before = table.pop(name) if tensor is _MISSING else table[name]
            break
    else:
        table = None
        before = getattr(module, name, _MISSING)
        if before is _MISSING and not allow_missing:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if before is not _MISSING and not isinstance(before, Tensor | None):
            raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        if table is None:
            setattr(module, name, tensor)
        else:
            table[name] = tensor
    elif table is None and before is not _MISSING:
        delattr(module, name)
    return before


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Puts a submodule where another one is, and returns that."""
    _checked(module, name)
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    before, module._modules[name] = module._modules[name], submodule
    return before


class NamedMemberAccessor:
    """The tensors and submodules of a module by their paths."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def _owner(self, path: str) -> tuple[Module, str]:
        prefix, _, name = path.rpartition(".")
        return self.get_submodule(prefix), name

    def get_submodule(self, name: str) -> Module:
        """The submodule at a path."""
        return self.module.get_submodule(name)

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Puts another submodule there, and returns the one there was."""
        owner, name = self._owner(path)
        return swap_submodule(owner, name, value)

    def get_tensor(self, name: str) -> Tensor:
        """The parameter or buffer at a path."""
        owner, last = self._owner(name)
        found = getattr(owner, last)
        if not isinstance(found, Tensor | None):
            raise TypeError(f"{found} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Tensor | None) -> None:
        """Puts a tensor at a path."""
        owner, last = self._owner(name)
        set_tensor(owner, last, value)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Puts a tensor at a path, and returns the one there was."""
        owner, last = self._owner(name)
        return swap_tensor(owner, last, value, allow_missing)

    def swap_tensors_dict(
        self, named_tensors: Mapping[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Does so for many; returns what was there, and the paths at which nothing was."""
        before: dict[str, Any] = {}
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, True)
            absent = [name for name, value in before.items() if value is _MISSING]
            if absent and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, absent))}.")
        except Exception:
            for name, value in before.items():
                self.swap_tensor(name, value, True)
            raise
        return before, absent

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The paths that are not among the keys, and the keys that are no paths."""
        own = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        given = set(keys)
        return sorted(own - given), sorted(given - own)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """The parameters and their paths."""
        return self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """The buffers and their paths."""
        return self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """Both."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Module]]:
        """The module itself and all below it, and their paths."""
        return self.module.named_modules(remove_duplicate=remove_duplicate)
