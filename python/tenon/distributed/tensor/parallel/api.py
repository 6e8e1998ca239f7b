"""parallelize_module: styles for the parts of a module, by their names."""

from __future__ import annotations

import warnings
from fnmatch import fnmatch
from typing import Any

from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor._api import _mesh
from tenon.distributed.tensor.parallel.style import ParallelStyle
from tenon.nn.modules.module import Module

__all__ = ["parallelize_module"]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Cuts a module, or those inside it that a plan names, over a mesh of one dimension. Names may
    have wildcards in each of their parts: "layers.*.up"."""
    mesh = _mesh(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(
            f"parallelize_module: a mesh of one dimension is needed, this one has {mesh.ndim}: "
            "choose one by its name, mesh['tp']"
        )
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the "
                      "moment, so this parallelize_module call will do nothing.",
                      stacklevel=2)  # fmt: skip
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        _apply_at(module, path.split(".") if path else [], style, mesh, src_data_rank, path)
    return module


def _apply_at(
    module: Module, path: list[str], style: ParallelStyle, mesh: DeviceMesh, source: Any, whole: str
) -> None:
    if not path:
        parallelize_module(module, mesh, style, src_data_rank=source)
        return
    found = [(n, child) for n, child in module.named_children() if fnmatch(n, path[0])]
    if not found:
        warnings.warn(
            f"Parallelize plan key '{whole}' could not be resolved: no submodule matching token "
            f"'{path[0]}'",
            stacklevel=2,
        )
    for name, child in found:
        if len(path) > 1:
            _apply_at(child, path[1:], style, mesh, source, whole)
        else:
            setattr(module, name, parallelize_module(child, mesh, style, src_data_rank=source))
