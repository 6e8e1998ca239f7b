"""Gradients of tensors that are made of others: masked ones of their data, nested ones of their
components. Their classes say which tensors carry the history (`_carriers`), and make one of
gradients of these (`_with_carriers`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon import Tensor


def is_made_of_others(cls: type) -> bool:
    return hasattr(cls, "_carriers")


def spread(tensors: Sequence[Any]) -> list[Any]:
    """The tensors with their carriers in the place of those that are made of others."""
    found: list[Any] = []
    for t in tensors:
        found += t._carriers() if is_made_of_others(type(t)) else [t]
    return found


def spread_roots(
    roots: Sequence[Any], gradients: Sequence[Any] | None
) -> tuple[list[Any], list[Any] | None]:
    """Roots of a pass and the gradients there, which are None or made as their roots are."""
    if gradients is None:
        return spread(roots), None
    given: list[Any] = []
    for root, gradient in zip(roots, gradients, strict=True):
        count = len(spread([root]))
        own = [None] * count if gradient is None else spread([gradient])
        if len(own) != count:
            raise RuntimeError(
                f"grad_outputs: a tensor of {count} components needs a gradient of as many, "
                f"not of {len(own)}"
            )
        given += own
    return spread(roots), given


def gradients(
    run: Callable[..., Sequence[Tensor | None]],
    roots: Sequence[Any],
    wanted: Sequence[Any],
    given: Sequence[Any] | None,
    unused: bool,
    materialize: bool,
) -> tuple[Any, ...]:
    """What run(roots, wanted, grad_outputs), which takes plain tensors, finds of these; a carrier
    that was not used has a gradient of 0 if another of its tensor has one."""
    flat_roots, flat_given = spread_roots(roots, given)
    found = iter(run(flat_roots, spread(wanted), flat_given))
    results: list[Any] = []
    for t in wanted:
        carriers = spread([t])
        own = [next(found) for _ in carriers]
        if all(g is None for g in own) and not materialize:
            if not unused:
                raise RuntimeError(
                    "One of the differentiated Tensors appears to not have been used in the "
                    "graph. Set allow_unused=True if this is the desired behavior."
                )
            results.append(None)
            continue
        filled = [c.new_zeros(c.shape) if g is None else g
                  for c, g in zip(carriers, own, strict=True)]  # fmt: skip
        results.append(t._with_carriers(filled) if is_made_of_others(type(t)) else filled[0])
    return tuple(results)
