"""Gradients of functions, which may be nested and mapped by vmap.

Note [Mapped gradients]: inside vmap an argument becomes one variable with all elements, also where
it was the same for each, and the results of all elements are summed: no element depends on another,
so that the gradient of the sum holds those of the elements.

Note [Outer histories]: results stay connected with what is recorded outside of the transform: an
argument, or a tensor that the function looks at without being given it, such as a module's
parameters. Where nothing of that kind is in the history of func's result, the results have none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tenon
from tenon import _C
from tenon._program import foreign
from tenon._tape.function import pushing
from tenon._transform.vmap import (
    RANDOMNESS,
    Batched,
    batched,
    flat,
    levels,
    lift,
    lower,
    mapped,
)
from tenon.utils import _pytree


def _traced() -> bool:
    """Whether a program is being made, whose runs may want gradients that this call does not."""
    return tenon._C._program_is_recording() and not foreign.is_open()


def _recorded(value: Any) -> bool:
    """Whether somebody outside looks at the history of what is computed from value."""
    if not tenon.is_grad_enabled():
        return False
    tensors = (t for t in flat(value) if isinstance(t, tenon.Tensor))
    return any(t.requires_grad or _traced() for t in tensors)


def _captured(outs: list[Any], variables: list[Any]) -> bool:
    """Whether outs were computed from recorded tensors that were not given as arguments."""
    return tenon._C._hangs_on_others(outs, variables)


def _variables(value: Any) -> tuple[Any, list[Any]]:
    """The same with fresh variables in the place of its tensors, and these."""
    made: list[Any] = []

    def fresh(t: Any) -> Any:
        if not isinstance(t, tenon.Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
        whole = lift(t, levels())
        # a view of what an outer gradient looks at stays connected with it
        connected = whole.requires_grad or _traced()
        whole = whole.view_as(whole) if connected else whole.detach()
        whole = whole if whole.requires_grad else whole.requires_grad_()
        made.append(whole)
        return lower(whole, levels())

    return mapped(fresh, value), made


def _whole(t: Any) -> Any:
    return _whole(t._batch) if isinstance(t, Batched) else t


class _Inside(_C._Region):
    """While func runs, given others beside its variables: a recorded write to any tensor of before
    but these is refused, since the history that it gets would outlive the transform."""

    def __init__(self, others: Any = ()) -> None:
        self.others = tuple(_whole(t) for t in flat(others) if isinstance(t, tenon.Tensor))

    def _region(self) -> tuple[Any, ...]:
        return _C._enter_transform, (self.others,), _C._leave_transform, ()


def _alias(t: Any) -> Any:
    if isinstance(t, Batched):
        return batched(_alias(t._batch), t._level)
    plain = type(t) in (tenon.Tensor, tenon.nn.Parameter)
    return t.detach() if plain and not t.requires_grad else t


def _others(args: tuple[Any, ...], argnums: Any, kwargs: Any = None) -> Any:
    """What func gets beside the variables, None standing for these. A tensor without a history is
    an alias: what func writes stands in the memory of both, and its history goes with the alias."""
    none = None if isinstance(argnums, int) else (None,) * len(argnums)
    others = _replaced(args, argnums, none), kwargs or {}
    return others if _traced() else mapped(_alias, others)


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
    return mapped(lambda t: next(rest), like)


def _split(out: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """A function's result, and what it returns beside."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return out


def _tensors(value: Any, name: str) -> list[Any]:
    """The tensors of a function's result, which holds nothing else."""
    outs = list(flat(value))
    if not outs or outs == [None]:
        raise RuntimeError(
            f"{name}: Expected f to be a function that has non-empty output (got output = {value})"
        )
    for t in outs:
        if not isinstance(t, tenon.Tensor):
            raise RuntimeError(
                f"{name}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(t)}"
            )
    return outs


def _chosen(args: tuple[Any, ...], argnums: Any) -> Any:
    if not isinstance(argnums, int | tuple):
        raise RuntimeError(f"argnum must be int or Tuple, got: {type(argnums)}")
    if argnums == ():
        raise RuntimeError("argnums must be non-empty")
    for n in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(
                f"Got argnum={n}, but only {len(args)} positional inputs were passed"
            )
    if isinstance(argnums, int):
        return args[argnums]
    if len({n % len(args) for n in argnums}) != len(argnums):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple(args[n] for n in argnums)


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
        outside, keep = tenon.is_grad_enabled(), _recorded((args, kwargs))
        chosen = _chosen(args, argnums)
        given, named = others = _others(args, argnums, kwargs)
        with tenon.enable_grad():
            fresh, variables = _variables(chosen)
            with _Inside(others):
                out = func(*_replaced(given, argnums, fresh), **named)
            value, aux = _split(out, has_aux, "grad_and_value(f)(*args)")
            if not isinstance(value, tenon.Tensor):
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got "
                    f"{type(value)}"
                )
            if value.dim() != 0:
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got "
                    f"tensor with {value.dim()} dims. Maybe you wanted to use the vjp or jacrev "
                    "APIs instead?"
                )
            whole = lift(value, levels())
            keep = keep or (outside and _captured([whole], variables))
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
    return _vjp(func, primals, has_aux)


def _vjp(func: Callable[..., Any], primals: Any, has_aux: bool, others: Any = ()) -> Any:
    outside, keep = tenon.is_grad_enabled(), _recorded(primals)
    some = list(levels())
    with tenon.enable_grad():
        fresh, variables = _variables(primals)
        with _Inside(others):
            out = func(*fresh)
    value, aux = _split(out, has_aux, "vjp(f, *primals)")
    outs = [lift(t, some) for t in _tensors(value, "vjp(f, *primals)")]
    for o in outs:
        if not (o.is_floating_point() or o.is_complex()):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {o.dtype}"
            )
    keep = keep or (outside and _captured(outs, variables))

    def vjp_fn(cotangents: Any) -> Any:
        given, wanted = _pytree.tree_structure(cotangents), _pytree.tree_structure(value)
        if given != wanted:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {_pytree.treespec_pprint(given)}, "
                f"primal output: {_pytree.treespec_pprint(wanted)}"
            )
        seeds = [lift(t, some).expand_as(o) for t, o in zip(flat(cotangents), outs, strict=True)]
        recorded = tenon.is_grad_enabled() and (keep or _recorded(cotangents))
        with tenon.enable_grad():
            found = _gradients(outs, variables, seeds, recorded)
        return _refilled(primals, [lower(g, some) for g in found])

    value = _plain(value, keep)
    return (value, vjp_fn, _plain(aux, keep)) if has_aux else (value, vjp_fn)


def jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
    has_aux: bool = False,
) -> Any:  # fmt: skip
    """func's value and its directional derivative, by two backward passes; it nests."""
    for given, what in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, tuple):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {what} to be a tuple, got {type(given)}"
            )
    if not primals:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to contain at least one Tensor"
        )
    form, other = _pytree.tree_structure(primals), _pytree.tree_structure(tangents)
    if form != other:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
            "structure. For example, if primals is a tuple of 3 tensors, tangents also must be. "
            f"Got primals with structure {form} and tangents with structure {other}"
        )
    leaves = _pytree.tree_leaves(primals), _pytree.tree_leaves(tangents)
    pairs = list(zip(*leaves, strict=True))
    for v in (v for pair in pairs for v in pair):
        if not isinstance(v, tenon.Tensor):
            raise RuntimeError(
                "jvp(f, primals, tangents): Expected primals and tangents to only contain Tensors, "
                f"got {type(v)}"
            )
    if any(p.shape != t.shape for p, t in pairs):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same shapes"
        )
    value, aux, push, depends = _linear(func, primals, has_aux, "jvp(f, primals, tangents)")
    if strict and not depends:
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
            "This is not allowed with strict=True."
        )
    tangent = push(*tangents)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """func's value and its derivative there, a function of tangents that may be called often."""
    value, _, push, _ = _linear(func, primals, False, "linearize(f, *primals)")
    return value, push


def _linear(
    func: Callable[..., Any], primals: Any, has_aux: bool, name: str, others: Any = ()
) -> Any:
    """func's value, what it returns beside, its derivative, whether all of it has one."""
    outside, keep = tenon.is_grad_enabled(), _recorded(primals)
    some = list(levels())
    with tenon.enable_grad():
        fresh, variables = _variables(primals)
        with _Inside(others):
            out = func(*fresh)
        value, aux = _split(out, has_aux, name)
        outs = [lift(t, some) for t in _tensors(value, name)]
        keep = keep or (outside and _captured(outs, variables))
        smooth = [o.is_floating_point() or o.is_complex() for o in outs]
        seeds = [tenon.ones_like(o).requires_grad_(s) for o, s in zip(outs, smooth, strict=True)]
        before, pushing.on = pushing.on, True
        try:
            rows = _gradients(outs, variables, seeds, True)
        finally:
            pushing.on = before
    wanted = [s for s in seeds if s.requires_grad]

    def push(*tangents: Any) -> Any:
        given = [lift(t, some).expand_as(r) for t, r in zip(flat(tangents), rows, strict=True)]
        pairs = [(r, t) for r, t in zip(rows, given, strict=True) if r.requires_grad]
        found: Any = [None] * len(wanted)
        if pairs:
            found = tenon.autograd.grad(
                [r for r, _ in pairs], wanted, [t for _, t in pairs], retain_graph=True,
                create_graph=keep or _recorded(tangents), allow_unused=True,
            )  # fmt: skip
        slopes = iter(found)
        pushed = [next(slopes) if s.requires_grad else None for s in seeds]
        filled = [tenon.zeros_like(o) if f is None else f
                  for o, f in zip(outs, pushed, strict=True)]  # fmt: skip
        return _refilled(value, [lower(f, some) for f in filled])

    depends = all(o.requires_grad for o in outs)
    return _plain(value, keep), _plain(aux, keep), push, depends


def _check_chunks(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")


def _unit(like: list[Any], place: int, element: int) -> list[Any]:
    """Zeros like these tensors, with one 1."""
    made = [tenon.zeros(tuple(t.shape), dtype=t.dtype, device=t.device) for t in like]
    made[place].view(-1)[element] = 1
    return made


def _check_real(name: str, what: str, values: Any) -> None:
    """A column or row of a Jacobian is one derivative, and those of complex numbers are two."""
    for i, v in enumerate(flat(values)):
        if isinstance(v, tenon.Tensor) and v.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened "
                f"input idx: {i}"
            )


def jacrev(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that returns all derivatives of func's result: its shape, then the argument's.
    They are computed row by row, whatever chunk_size and where PyTorch would put chunks first."""
    _check_chunks(chunk_size)

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _check_real("jacrev", "inputs", args)
        chosen = _chosen(args, argnums)
        others = _others(args, argnums)

        def of_chosen(value: Any) -> Any:
            return func(*_replaced(others[0], argnums, value))

        found = _vjp(of_chosen, (chosen,), has_aux, others)
        value, back = found[:2]
        _check_real("jacrev", "outputs", value)
        outs, leaves = list(flat(value)), list(flat(chosen))

        def block(k: int) -> Any:
            units = (_refilled(value, _unit(outs, k, i)) for i in range(outs[k].numel()))
            rows = [list(flat(back(unit)[0])) for unit in units]
            shapes = [(*outs[k].shape, *leaf.shape) for leaf in leaves]
            if not rows:
                empty = [leaf.new_zeros(s) for leaf, s in zip(leaves, shapes, strict=True)]
                return _refilled(chosen, empty)
            columns = zip(zip(*rows, strict=True), shapes, strict=True)
            return _refilled(chosen, [tenon.stack(list(c)).reshape(s) for c, s in columns])

        jacobian = _refilled(value, [block(k) for k in range(len(outs))])
        return (jacobian, found[2]) if has_aux else jacobian

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
    chunk_size: int | None = None, randomness: str = "error",
) -> Callable[..., Any]:  # fmt: skip
    """jacrev's result, column by column: fewer steps where the result is larger than the
    arguments. func runs once, so that randomness makes no difference."""
    _check_chunks(chunk_size)
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _check_real("jacfwd", "inputs", args)
        if levels():
            return jacrev(func, argnums, has_aux)(*args)
        chosen = _chosen(args, argnums)
        others = _others(args, argnums)

        def of_chosen(value: Any) -> Any:
            return func(*_replaced(others[0], argnums, value))

        value, aux, push, _ = _linear(
            of_chosen, (chosen,), has_aux, "jvp(f, primals, tangents)", others
        )
        _check_real("jacfwd", "outputs", value)
        outs, leaves = list(flat(value)), list(flat(chosen))
        blocks: list[list[Any]] = [[] for _ in outs]
        for j, leaf in enumerate(leaves):
            columns = [list(flat(push(*_unit(leaves, j, i)))) for i in range(leaf.numel())]
            for k, out in enumerate(outs):
                shape = (*out.shape, *leaf.shape)
                whole = [c[k] for c in columns]
                blocks[k].append(
                    tenon.stack(whole, -1).reshape(shape) if whole else out.new_zeros(shape)
                )
        jacobian = _refilled(value, [_refilled(chosen, block) for block in blocks])
        return (jacobian, aux) if has_aux else jacobian

    return wrapped


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of func."""
    return jacrev(jacrev(func, argnums), argnums)
