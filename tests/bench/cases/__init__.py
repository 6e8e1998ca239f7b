"""All cases, by group; importing this package fills registry.CASES in the order of the table."""

import importlib
from typing import Any

for _name in (
    "overhead", "pointwise", "reductions", "rand_sort", "linalg", "layers", "training", "models",
    "inout", "spectral", "growth",
):  # fmt: skip
    importlib.import_module(f"cases.{_name}")


def add_cuda(sizes: dict[str, Any]) -> None:
    """Adds what is timed on a GPU only."""
    cuda = importlib.import_module("cases.cuda")
    cuda.add(cuda.Sizes(**sizes))
