"""Gradients of functions, which may be nested and mapped by vmap.

Note [Mapped gradients]: inside vmap an argument becomes one variable with all elements, also where
it was the same for each, and the results of all elements are summed: no element depends on another,
so that the gradient of the sum holds those of the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tenon
from tenon._transform.vmap import flat, levels, lift, lower, mapped


def _recorded(value: Any) -> bool:
    return any(isinstance(t, tenon.Tensor) and t.requires_grad for t in flat(value))


def _variables(value: Any) -> tuple[Any, list[Any]]:
    """The same with fresh variables in the place of its tensors, and these."""
    made: list[Any] = []

    def fresh(t: Any) -> Any:
        if not isinstance(t, tenon.Tensor):
            return t
        whole = lift(t, levels())
        # a view of what an outer gradient looks at stays connected with it
        whole = whole.view_as(whole) if whole.requires_grad else whole.detach().requires_grad_()
        made.append(whole)
        return lower(whole, levels())

    return mapped(fresh, value), made


def _gradients(outs: list[Any], variables: list[Any], seeds: Any, keep: bool) -> list[Any]:
    pairs = [(o, s) for o, s in zip(outs, seeds, strict=True) if o.requires_grad]
    found: Any = [None] * len(variables)
    if pairs:
        found = tenon.autograd.grad(
            [o for o, _ in pairs], variables, [s for _, s in pairs], allow_unused=True,
            create_graph=keep, retain_graph=True,
        )  # fmt: skip
    return [tenon.zeros_like(v) if g is None else g for v, g in zip(variables, found, strict=True)]


def _refilled(like: Any, values: list[Any]) -> Any:
    rest = iter(values)
    return mapped(lambda t: next(rest) if isinstance(t, tenon.Tensor) else None, like)


def _chosen(args: tuple[Any, ...], argnums: Any) -> Any:
    for n in (argnums,) if isinstance(argnums, int) else argnums:
        if not -len(args) <= n < len(args):
            raise RuntimeError(
                f"Got argnum={n}, but only {len(args)} positional inputs were passed"
            )
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)


def _replaced(args: tuple[Any, ...], argnums: Any, values: Any) -> list[Any]:
    new = list(args)
    pairs = [(argnums, values)] if isinstance(argnums, int) else zip(argnums, values, strict=True)
    for n, value in pairs:
        new[n] = value
    return new


def _plain(value: Any, keep: bool) -> Any:
    if keep:
        return value
    return mapped(lambda t: t.detach() if isinstance(t, tenon.Tensor) else t, value)


def grad_and_value(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of func, which returns a scalar, and func's value."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        keep = _recorded((args, kwargs))
        chosen = _chosen(args, argnums)
        with tenon.enable_grad():
            fresh, variables = _variables(chosen)
            out = func(*_replaced(args, argnums, fresh), **kwargs)
            value, aux = out if has_aux else (out, None)
            if not isinstance(value, tenon.Tensor) or value.dim() != 0:
                shape = list(value.shape) if isinstance(value, tenon.Tensor) else type(value)
                raise RuntimeError(f"grad: Expected func to return a scalar tensor, got {shape}")
            whole = lift(value, levels())
            found = _gradients([whole], variables, [tenon.ones_like(whole)], keep)
        grads = _refilled(chosen, [lower(_plain(g, keep), levels()) for g in found])
        value, aux = _plain((value, aux), keep)
        return (grads, (value, aux)) if has_aux else (grads, value)

    return wrapped


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of func with respect to some of its arguments."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func's value and a function that takes gradients of it to gradients of the arguments."""
    keep = _recorded(primals)
    some = list(levels())
    with tenon.enable_grad():
        fresh, variables = _variables(primals)
        out = func(*fresh)
    value, aux = out if has_aux else (out, None)
    outs = [lift(t, some) for t in flat(value)]

    def vjp_fn(cotangents: Any) -> Any:
        seeds = [lift(t, some).expand_as(o) for t, o in zip(flat(cotangents), outs, strict=True)]
        with tenon.enable_grad():
            found = _gradients(outs, variables, seeds, keep or _recorded(cotangents))
        return _refilled(primals, [lower(g, some) for g in found])

    value = _plain(value, keep)
    return (value, vjp_fn, _plain(aux, keep)) if has_aux else (value, vjp_fn)


def jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
    has_aux: bool = False,
) -> Any:  # fmt: skip
    """func's value and its directional derivative, by two backward passes; it nests."""
    rest: list[Any] = []

    def value(*args: Any) -> Any:
        out = func(*args)
        rest[:] = out[1:] if has_aux else []
        return out[0] if has_aux else out

    found = tenon.autograd.functional.jvp(
        value, tuple(primals), tuple(tangents), create_graph=_recorded(primals), strict=strict
    )
    return (*found, _plain(rest[0], _recorded(primals))) if has_aux else found


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """func's value and its derivative there, a function of tangents that may be called often."""
    keep = _recorded(primals)
    some = list(levels())
    with tenon.enable_grad():
        fresh, variables = _variables(primals)
        value = func(*fresh)
        outs = [lift(t, some) for t in flat(value)]
        seeds = [tenon.ones_like(o).requires_grad_() for o in outs]
        rows = _gradients(outs, variables, seeds, True)

    def push(*tangents: Any) -> Any:
        given = [lift(t, some).expand_as(r) for t, r in zip(flat(tangents), rows, strict=True)]
        pairs = [(r, t) for r, t in zip(rows, given) if r.requires_grad]
        found: Any = [None] * len(seeds)
        if pairs:
            found = tenon.autograd.grad(
                [r for r, _ in pairs], seeds, [t for _, t in pairs], retain_graph=True,
                create_graph=keep or _recorded(tangents), allow_unused=True,
            )  # fmt: skip
        filled = [tenon.zeros_like(o) if f is None else f for o, f in zip(outs, found)]
        return _refilled(value, [lower(f, some) for f in filled])

    return _plain(value, keep), push


def jacrev(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns all derivatives of func's result: its shape, then the argument's."""

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        chosen = _chosen(args, argnums)

        def of_chosen(value: Any) -> Any:
            return func(*_replaced(args, argnums, value))

        found = vjp(of_chosen, chosen, has_aux=has_aux)
        value, back = found[:2]
        if not isinstance(value, tenon.Tensor):
            raise RuntimeError(f"jacrev: Expected func to return a Tensor, got {type(value)}")
        rows = []
        for i in range(value.numel()):
            seed = tenon.zeros(value.numel(), dtype=value.dtype, device=value.device)
            seed[i] = 1
            rows.append(back(seed.reshape(value.shape))[0])
        columns = zip(*[list(flat(r)) for r in rows], strict=True)
        stacked = [tenon.stack(list(c)).reshape(*value.shape, *c[0].shape) for c in columns]
        jacobian = _refilled(chosen, stacked)
        return (jacobian, found[2]) if has_aux else jacobian

    return wrapped


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """jacrev's result, column by column: fewer steps where the result is larger than the
    arguments."""

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        if levels():
            return jacrev(func, argnums, has_aux)(*args)
        chosen = _chosen(args, argnums)
        rest: list[Any] = []

        def of_chosen(*values: Any) -> Any:
            given = values if isinstance(argnums, tuple) else values[0]
            out = func(*_replaced(args, argnums, given))
            rest[:] = out[1:] if has_aux else []
            return out[0] if has_aux else out

        primals = chosen if isinstance(argnums, tuple) else (chosen,)
        value, push = linearize(of_chosen, *primals)
        blocks = [_columns(value, push, primals, k) for k in range(len(primals))]
        jacobian = tuple(blocks) if isinstance(argnums, tuple) else blocks[0]
        return (jacobian, _plain(rest[0], _recorded(args))) if has_aux else jacobian

    return wrapped


def _columns(value: Any, push: Any, primals: Any, k: int) -> Any:
    """The derivatives by the elements of argument k, one pushed tangent for each."""
    if not isinstance(value, tenon.Tensor):
        raise RuntimeError(f"jacfwd: Expected func to return a Tensor, got {type(value)}")
    columns = []
    for i in range(primals[k].numel()):
        tangents = [tenon.zeros_like(p) for p in primals]
        tangents[k].view(-1)[i] = 1
        columns.append(push(*tangents))
    if not columns:
        return value.new_zeros((*value.shape, *primals[k].shape))
    return tenon.stack(columns, -1).reshape(*value.shape, *primals[k].shape)


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of func."""
    return jacrev(jacrev(func, argnums), argnums)
