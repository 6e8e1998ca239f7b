"""All cases, by group; importing this package fills registry.CASES in the order of the table."""

import importlib

for _name in (
    "overhead", "pointwise", "reductions", "rand_sort", "linalg", "layers", "training", "models",
    "inout",
):  # fmt: skip
    importlib.import_module(f"cases.{_name}")
