"""Operators that stand behind others, gradients above all, get what the others have checked; called
by themselves they refuse operands whose shapes do not belong together, and read nothing beyond."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import tenon as tn
from both import flat
from table import call, make_case, rows, tensor_args
from tenon.utils._python_dispatch import TorchDispatchMode

PARTS = {row["name"]: row for row in rows() if row["kind"] == "structured" and not row["where"]}
# What has sizes of its own, in one dimension at least.
FREE = {
    "_adaptive_avg_pool2d input", "_adaptive_avg_pool2d_backward grad", "_cdist x1", "_cdist x2",
    "_conv_int8 input", "_conv_int8 scale", "_conv_int8 weight", "_cross_entropy input",
    "_cross_entropy_backward input", "_ctc_loss log_probs", "_ctc_loss targets",
    "_ctc_loss_backward log_probs", "_ctc_loss_backward targets", "_embedding_gather indices",
    "_embedding_gather weight", "_fft_c2c input", "_fft_c2r input", "_fft_r2c input",
    "_grid_sample input", "_grid_sample_curve input", "_grid_sample_grid input", "_inverse A",
    "_linear_backward_weight grad", "_linear_backward_weight input", "_linear_int4 input",
    "_linear_int8 input", "_linear_int8 scale", "_max_pool2d_gather indices",
    "_max_pool2d_gather input", "_pad input", "_rms_norm input", "_scatter_ self",
    "_scatter_ src", "_sddmm plain", "_sddmm right", "_searchsorted input",
    "_searchsorted sorted_sequence", "_spmm dense", "_spmm index",
}  # fmt: skip


class Calls(TorchDispatchMode):
    """Keeps the first call of each part."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, tuple[list[Any], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")[1]
        if name in PARTS and name not in self.first:
            kept = [a.detach().clone() if isinstance(a, tn.Tensor) else a for a in args]
            self.first[name] = kept, dict(kwargs or {})
        return func(*args, **(kwargs or {}))


def run(row: dict[str, Any], sample: dict[str, Any]) -> None:
    """A call of an operator, and its gradient where it has one."""
    floats = "float32" in row["dtypes"] or not row["dtypes"]
    args = tensor_args(make_case(row, sample, "float32" if floats else row["dtypes"][0]))
    if not any("!" in a["type"] for a in row["args"]):
        for t in flat(list(args.values())):
            if isinstance(t, tn.Tensor) and t.is_floating_point():
                t.requires_grad_()
    inputs = [t for t in flat(list(args.values())) if isinstance(t, tn.Tensor) and t.requires_grad]
    ends = [t for t in flat(call(row, args)) if isinstance(t, tn.Tensor) and t.requires_grad]
    if ends and inputs:
        tn.autograd.grad(ends, inputs, [tn.ones_like(t) for t in ends], allow_unused=True)


def others(t: tn.Tensor) -> Iterator[tn.Tensor]:
    """Of other shapes."""
    shape = list(t.shape)
    if shape:
        yield t.new_zeros([*shape[:-1], shape[-1] + 1])
        yield t.new_zeros([shape[0] + 1, *shape[1:]])
        yield t.new_zeros(shape[1:])
    yield t.new_zeros([*shape, 2])


MISFIT = re.compile(r"(\w+)\(\): argument '(\w+)' must (?:have shape|be) ([^,]+|\[.*\]), not (.*)")


def names_the_one(err: Exception, name: str, args: list[Any]) -> bool:
    """Whether the words say what the argument that they name is."""
    found = MISFIT.match(str(err).partition("\n")[0])
    if not found:
        return False
    part, at, _, have = found.groups()
    names = [a["name"] for a in PARTS[name]["args"]]
    named = args[names.index(at)]
    kind = type_names(named)
    assert part == name and have in (str(list(named.shape)), *kind), f"{err}: {named.shape} {kind}"
    return True


def type_names(t: tn.Tensor) -> tuple[str, str]:
    return t.type().rpartition(".")[2].removesuffix("Tensor"), str(t.dtype).rpartition(".")[2]


def test_operands_belong_together() -> None:
    with Calls() as calls:
        for row in rows():
            for sample in row["samples"][:2]:
                with suppress(Exception):
                    run(row, sample)
    assert len(calls.first) > 25
    taken, told = set(), set()
    for name, (args, named) in calls.first.items():
        part = getattr(tn._C._ops, name)
        part(*args, **named)
        for k, arg in enumerate(args):
            of_another = [arg.to(tn.float64)] if isinstance(arg, tn.Tensor) else []
            for other in [*others(arg), *of_another] if isinstance(arg, tn.Tensor) else ():
                changed = [*args[:k], other, *args[k + 1 :]]
                try:
                    part(*changed, **named)
                    if other.shape != arg.shape:
                        taken.add(f"{name} {PARTS[name]['args'][k]['name']}")
                except (RuntimeError, ValueError, IndexError) as err:
                    told |= {name} if names_the_one(err, name, changed) else set()
    assert taken == FREE
    assert len(told) > 20, told
