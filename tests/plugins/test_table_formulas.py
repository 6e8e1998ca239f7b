"""The formulas of the op table, compiled twice: into C when Tenon is built, and by the compiler of
plugins' formulas while a program runs. Both read one language and compute the same bits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import as_user
import numpy as np
import pytest
import tenon as tn
from added import COMPOSITE, load, private_cache  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ops"))

from table import make_case, tensor_args

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

TABLE = json.loads((Path(tn.__file__).parent / "ops.json").read_text(encoding="utf-8"))
# What a plugin's operator cannot have: absent members of a list, arguments that are written. Its
# formulas call no operator that writes to its first argument, which is what these do to a copy.
OUTSIDE = ("Tensor?[]", "!")
WRITE = {
    "scatter", "scatter_add", "scatter_value", "scatter_value_reduce", "scatter_with_reduce",
    "index_add", "index_copy", "index_fill",
}  # fmt: skip


def formulas(row: dict[str, Any]) -> dict[str, str]:
    """The gradients that the entry has a formula for."""
    grad = row["grad"] if isinstance(row["grad"], dict) else {}
    return {name: text for name, text in grad.items() if text not in ("none", "missing")}


def has_forward(row: dict[str, Any]) -> bool:
    return row["forward"] not in (None, "custom")


def call_of(row: dict[str, Any]) -> str:
    """The operator itself, as a formula."""
    given = ", ".join(f"{a['name']}={a['name']}" for a in row["args"])
    call = f"{row['name']}({given})"
    if len(row["outs"]) < 2:
        return call
    return "; ".join(f"{name}: {call}[{i}]" for i, name in enumerate(row["outs"]))


ROWS = [
    r
    for r in TABLE
    if (has_forward(r) or formulas(r))
    and r["name"] not in WRITE
    and r["name"] != "view_copy_as_type"  # its sample is a dtype, which is no text
    and not any(text in r["sig"] for text in OUTSIDE)
]


@pytest.fixture(scope="module")
def twice() -> Any:
    """Per row `f`, by its formulas, and `r`, by the operator."""
    tn.ones(1)  # the CPU's kernels are there before they are hidden
    lines = []
    for i, row in enumerate(ROWS):
        sig = row["sig"].partition("(")[2]
        grad = "; ".join(f"{name}: {text}" for name, text in formulas(row).items())
        given = row["forward"] if has_forward(row) else call_of(row)
        for kind, text, gradient in (("f", given, grad), ("r", call_of(row), "")):
            texts = (f"twice::{kind}{i}({sig}", text, gradient)
            lines.append("{" + ", ".join(json.dumps(t) for t in texts) + "},")
    before = "static const char *const all[][3] = {\n" + "\n".join(lines) + "\n};"
    more = (
        "for (size_t i = 0; i < sizeof all / sizeof all[0] && st == TN_OK; i++) {"
        "op.schema = all[i][0]; op.formula = all[i][1];"
        "op.gradient = all[i][2][0] ? all[i][2] : NULL; st = h->register_op(t, &op); } return st;"
    )
    return load(
        "twice", f'{COMPOSITE}"twice::none(Tensor x) -> Tensor", .formula = "x"', more, before
    )


def inputs_of(row: dict[str, Any], sample: dict[str, Any]) -> dict[str, Any]:
    """The sample in a dtype that the operator takes; what can have a gradient asks for it."""
    dtypes = ("float64", "complex128", "float32", "int64", "bool")
    dtype = next((d for d in dtypes if d in row["dtypes"]), "float64")
    args = tensor_args(make_case(row, sample, dtype))
    wanted = set(formulas(row)) or {a["name"] for a in row["args"]}
    for name, value in args.items():
        for t in value if isinstance(value, list) else [value]:
            floats = isinstance(t, tn.Tensor) and (t.is_floating_point() or t.is_complex())
            if floats and name in wanted and row["differentiable"]:
                t.requires_grad_(True)
    return args


def computed(fn: Any, row: dict[str, Any], sample: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The results' bits, and those of the gradients of a sum with weights."""
    args = inputs_of(row, sample)
    tn.manual_seed(5)
    results = fn(**args)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    got = [t.detach().resolve_conj().numpy().copy() for t in results]
    loss = [(t * (k + 1)).abs().sum() for k, t in enumerate(results) if t.requires_grad]
    if loss:
        tn.stack(loss).sum().backward()
    flat = [t for v in args.values() for t in (v if isinstance(v, list) else [v])]
    return got + [t.grad.numpy() for t in flat if isinstance(t, tn.Tensor) and t.grad is not None]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[r["name"] for r in ROWS])
def test_both_compute_the_same_bits(twice: Any, number: int) -> None:
    row = ROWS[number]
    tn._C._hide_kernels(True)
    try:
        for sample in row["samples"]:
            want = computed(getattr(twice, f"r{number}"), row, sample)
            got = computed(getattr(twice, f"f{number}"), row, sample)
            assert len(got) == len(want)
            for mine, other in zip(got, want, strict=True):
                assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
                assert mine.tobytes() == other.tobytes(), (row["name"], sample)
    finally:
        tn._C._hide_kernels(False)


def test_what_is_compared() -> None:
    """Of the table's formulas nine in ten compile at run time too, and most of them have samples;
    backward operators, which have none, run in the gradients of the others."""
    count = [
        sum(len(formulas(r)) + has_forward(r) for r in rows)
        for rows in (TABLE, ROWS, [r for r in ROWS if r["samples"]])
    ]
    assert count[1] > 0.9 * count[0] and count[2] > 0.6 * count[1], count
