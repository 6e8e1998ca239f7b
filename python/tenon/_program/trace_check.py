"""What `jit.trace` records a second time, and what must be equal in both recordings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tenon
from tenon._program import Program
from tenon._program.traced import Layout, Recording, TracerWarning, unchanged


def _closest(a: Any, b: Any, tolerance: float) -> bool:
    if not (a.is_floating_point() or a.is_complex()):
        return tenon.equal(a, b)
    return tenon.allclose(a.detach(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)


def check_again(
    recording: Recording, fn: Callable[..., Any], example: tuple[Any, ...], tolerance: float
) -> Program:
    """Records the function again and compares."""
    _, tensors = Layout.of((example, {}), "inputs of a trace")
    fresh = [t.detach().clone() for t in tensors]
    args, kwargs = recording.layout.build([t.detach().clone() for t in tensors])
    with unchanged(fn):
        again = Recording(fn, args, kwargs)
        expected = again.results
    with tenon.no_grad(), unchanged(fn):
        got = recording.program(*fresh)
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a.shape != b.shape or not _closest(a, b, tolerance):
            warnings.warn(
                f"Output nr {i + 1} of the traced function does not match the corresponding output "
                "of the Python function: the function draws random numbers, keeps state that is no "
                "parameter or buffer, or takes another course for these inputs",
                TracerWarning,
                stacklevel=4,
            )
    return again.program


def constants_of(program: Program) -> list[Any]:
    return [t.detach().clone() for name, _, t in program.weights if not name]


def same_constants(a: list[Any], b: list[Any]) -> bool:
    return all(
        x.shape == y.shape and x.dtype == y.dtype and tenon.equal(x, y)
        for x, y in zip(a, b, strict=True)
    )
