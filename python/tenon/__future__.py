"""How modules are converted and loaded, where a later release may do it otherwise."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_overwrites = _swaps = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `Module.to` and its kin give a module new parameters. False, as at the start: the
    parameters stay the same objects and get other data."""
    global _overwrites
    _overwrites = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether modules get new parameters when they are converted."""
    return _overwrites


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether `Module.to`, its kin and `load_state_dict` make parameters by `utils.swap_tensors`
    what they become: the same objects, of another class where the conversion gives one. It comes
    before set_overwrite_module_params_on_conversion."""
    global _swaps
    _swaps = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether parameters are swapped when modules are converted and loaded."""
    return _swaps
