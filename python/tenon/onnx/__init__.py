"""onnx: programs as ONNX models, through the `onnx` package, which has to be installed.

`export` records a call (docs/graphs.md) and translates its operators; what has no translation is
named in the error, all of it at once.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import tenon
from tenon._tensor.dims import wrapped_dim
from tenon.export import Dim, ExportedProgram
from tenon.export import export as _export
from tenon.io import atomic
from tenon.nn import Module

__all__ = ["ONNXProgram", "OnnxExporterError", "export", "is_in_onnx_export", "load"]

_OPSETS = range(18, 22)


class OnnxExporterError(RuntimeError):
    """A program that has no translation."""


def is_in_onnx_export() -> bool:
    """Whether the caller is being recorded."""
    return tenon._C._program_is_recording()


class ONNXProgram:
    """A model, with the program that it was made of."""

    def __init__(self, model_proto: Any, exported_program: ExportedProgram) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program

    def save(self, destination: str | os.PathLike[str]) -> None:
        atomic.replace(destination, self.model_proto.SerializeToString())


def load(source: str | os.PathLike[str] | bytes) -> Module:
    """The module of an ONNX model, which is called with the model's inputs and can be trained.

    Initialisers are its parameters, under their names. Several outputs come as a tuple.
    """
    from tenon.onnx import _load

    return _load.load(source)


def _shapes(
    names: list[str], tensors: list[Any], axes: dict[str, Any] | None
) -> dict[str, dict[int, Dim]] | None:
    """dynamic_axes, by input name, as dynamic_shapes."""
    if not axes:
        return None
    made: dict[str, Dim] = {}
    found: dict[str, dict[int, Dim]] = {}
    for name, given in axes.items():
        if name not in names:
            continue  # an output's sizes follow
        pairs = given.items() if isinstance(given, dict) else ((d, f"{name}_{d}") for d in given)
        rank = tensors[names.index(name)].ndim
        for dim, label in pairs:
            found.setdefault(name, {})[wrapped_dim(dim, rank)] = made.setdefault(
                label, Dim(label, min=1)
            )
    return found


def export(
    model: Module | ExportedProgram,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    input_names: list[str] | None = None,
    output_names: list[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> ONNXProgram:
    """Writes `model`, called with `args`, to `f` (a path, a file or nothing) as an ONNX model."""
    from tenon.onnx._translate import translate

    opset = 18 if opset_version is None else opset_version
    if 0 < opset < _OPSETS.start:
        warnings.warn(
            f"onnx.export writes opset {_OPSETS.start}: opset {opset} has other forms of operators",
            stacklevel=2,
        )
        opset = _OPSETS.start
    if opset not in _OPSETS:
        raise OnnxExporterError(
            f"onnx.export writes opset {_OPSETS.start} to {_OPSETS.stop - 1}, not {opset_version}"
        )
    if not isinstance(model, ExportedProgram):
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        if dynamic_axes and dynamic_shapes is None:
            dynamic_shapes = _by_position(model, args, kwargs, input_names, dynamic_axes)
        model = _export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    proto = translate(model, opset, input_names, output_names)
    made = ONNXProgram(proto, model)
    if isinstance(f, (str, os.PathLike)):
        made.save(f)
    elif f is not None:
        f.write(proto.SerializeToString())
    return made


def _by_position(
    model: Module, args: Any, kwargs: Any, names: list[str] | None, axes: dict[str, Any]
) -> Any:
    """dynamic_axes speaks of input_names, dynamic_shapes of arguments: both are in order."""
    import inspect

    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **(kwargs or {})).arguments
    kinds = [p for p in signature.parameters.values() if p.name in bound]
    if len(kinds) == 1 and kinds[0].kind is kinds[0].VAR_POSITIONAL:
        found = _shapes((names or [])[: len(args)], list(args), axes) or {}
        return {kinds[0].name: tuple(found.get(name) for name in (names or [])[: len(args)])}
    if not all(isinstance(v, tenon.Tensor) for v in bound.values()):
        raise OnnxExporterError("dynamic_axes needs tensors as arguments; use dynamic_shapes")
    own = list(bound)
    names = [*(names or [])[: len(own)], *own[len(names or []) :]]
    found = _shapes(names, list(bound.values()), axes) or {}
    return {name: found.get(label) for name, label in zip(own, names, strict=True)}
