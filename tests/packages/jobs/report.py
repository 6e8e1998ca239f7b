"""What a job prints: a name, a tolerance, and numbers, one report a line."""

from typing import Any


def _numbers(value: Any) -> list[float]:
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [n for v in value for n in _numbers(v)]
    return [float(value)]


def report(name: str, value: Any, tolerance: float = 1e-4) -> None:
    """Numbers that must be those of PyTorch but for the tolerance, relative to the largest."""
    numbers = _numbers(value)
    print("\t".join(["#", name, repr(tolerance), *(repr(n) for n in numbers)]), flush=True)
