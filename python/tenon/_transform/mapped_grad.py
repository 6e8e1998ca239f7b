"""`autograd.grad` inside `vmap`: the gradients of each element."""

from __future__ import annotations

from typing import Any

import tenon
from tenon._transform.vmap import Batched, Level, batched, innermost_level, is_batched


def grad_of_elements(
    roots: tuple[Any, ...], wanted: tuple[Any, ...], seeds: tuple[Any, ...] | None, retain: bool,
    **options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients where some of the tensors are mapped; one level of vmap, grad sees to the others.

    Elements do not know of each other: where every output and input is mapped, one pass finds the
    gradients of all. An input that all elements share has another gradient for each of them.
    """
    level = innermost_level((roots, wanted, seeds))
    given = (None,) * len(roots) if seeds is None else seeds
    if level.size and all(is_batched(v, level.number) for v in (*roots, *wanted)):
        spread = [_spread(r, s, level) for r, s in zip(roots, given, strict=True)]
        wholes = [[v._batch for v in values] for values in (roots, wanted)]
        found = tenon.autograd.grad(*wholes, spread, retain, **options)
        return tuple(None if g is None else batched(g, level.number) for g in found)
    columns: list[list[Any]] = [[] for _ in wanted]
    for i in range(level.size):
        one, row = ([_element(v, level, i) for v in values] for values in (roots, given))
        inputs = [w._batch if is_batched(w, level.number) else w for w in wanted]
        keep = retain or i + 1 < level.size
        found = tenon.autograd.grad(one, inputs, row, keep, **options)
        for column, w, g in zip(columns, wanted, found, strict=True):
            mapped = g is not None and is_batched(w, level.number)
            column.append(g.select(0, i) if mapped else g)
    return tuple(
        _stacked(column, w, level) for column, w in zip(columns, wanted, strict=True)
    )  # fmt: skip


def _element(value: Any, level: Level, i: int) -> Any:
    return value._batch.select(0, i) if is_batched(value, level.number) else value


def _spread(root: Batched, seed: Any, level: Level) -> Any:
    """What every element of an output is multiplied by."""
    if seed is None:
        if root.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        return tenon.ones_like(root._batch)
    if is_batched(seed, level.number):
        return seed._batch
    return seed.expand(level.size, *seed.shape)


def _stacked(column: list[Any], w: Any, level: Level) -> Any:
    if not column:
        return batched(w.new_zeros((0, *w.shape)), level.number)
    return None if column[0] is None else batched(tenon.stack(column), level.number)
