"""Modules that are called at once, each with its own arguments, in threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor that is in an object or in its lists, tuples and dicts; None for none."""
    if isinstance(obj, Tensor):
        return obj
    parts = obj.items() if isinstance(obj, dict) else obj
    if not isinstance(obj, list | tuple | dict):
        return None
    return next((found for found in map(get_a_var, parts) if found is not None), None)


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """The results of the modules, called at once; a module runs where its tensors are."""
    n = len(modules)
    kwargs = [{}] * n if kwargs_tup is None else kwargs_tup
    for name, given in (("inputs", inputs), ("kwargs_tup", kwargs), ("devices", devices)):
        if given is not None and len(given) != n:
            raise AssertionError(
                f"The number of modules {n} is not equal to the number of {name} {len(given)}"
            )
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n
    grad = tenon.is_grad_enabled()

    def call(i: int) -> None:
        row = inputs[i] if isinstance(inputs[i], list | tuple) else (inputs[i],)
        try:
            with tenon.set_grad_enabled(grad):
                results[i] = modules[i](*row, **kwargs[i])
        except Exception as error:
            errors[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, error in enumerate(errors):
        if error is not None:
            error.add_note(f"in replica {i} of parallel_apply()")
            raise error
    return results
