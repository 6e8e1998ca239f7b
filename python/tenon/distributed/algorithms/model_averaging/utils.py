"""Averages of parameters over processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tenon
from tenon import distributed

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """The parameters, or those of an optimizer's groups, that have a gradient."""
    found: list[Any] = []
    for item in params:
        if isinstance(item, dict):
            found += [p for p in item["params"] if p.grad is not None]
        elif not isinstance(item, tenon.nn.Parameter):
            raise TypeError(
                f"Parameter input of type {type(item)} is not supported; "
                "expected parameters or parameter groups"
            )
        elif item.grad is not None:
            found.append(item)
    return found


def average_parameters(params: Iterator[Any], process_group: Any = None) -> None:
    """Each parameter becomes its average over the processes."""
    works = [
        distributed.all_reduce(p, distributed.ReduceOp.AVG, process_group, async_op=True)
        for p in params
    ]
    for work in works:
        if work is not None:
            work.wait()


def average_parameters_or_parameter_groups(params: Any, process_group: Any = None) -> None:
    """average_parameters of those that have a gradient."""
    average_parameters(iter(get_params_to_average(params)), process_group)
