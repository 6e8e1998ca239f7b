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
from tenon._transform import rows
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
    if not outs or (len(outs) == 1 and outs[0] is None):
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


class _Called:
    """func's result for fresh variables, and its tensors with the elements of all vmaps."""

    def __init__(
        self, func: Callable[..., Any], primals: Any, has_aux: bool, name: str, others: Any
    ) -> None:
        outside, self.keep = tenon.is_grad_enabled(), _recorded(primals)
        self.levels = list(levels())
        with tenon.enable_grad():
            fresh, self.variables = _variables(primals)
            with _Inside(others):
                out = func(*fresh)
        self.value, self.aux = _split(out, has_aux, name)
        self.inside = _tensors(self.value, name)
        self.outs = [lift(t, self.levels) for t in self.inside]
        # whether results stay connected with what is recorded outside
        self.keep = self.keep or (outside and _captured(self.outs, self.variables))


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func's value and a function that takes gradients of it to gradients of the arguments."""
    called = _Called(func, primals, has_aux, "vjp(f, *primals)", ())
    outs, some, keep = called.outs, called.levels, called.keep
    _check_smooth(outs)

    def vjp_fn(cotangents: Any) -> Any:
        given, wanted = map(_pytree.tree_structure, (cotangents, called.value))
        if given != wanted:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {_pytree.treespec_pprint(given)}, "
                f"primal output: {_pytree.treespec_pprint(wanted)}"
            )
        seeds = [lift(t, some).expand_as(o) for t, o in zip(flat(cotangents), outs, strict=True)]
        recorded = tenon.is_grad_enabled() and (keep or _recorded(cotangents))
        with tenon.enable_grad():
            found = _gradients(outs, called.variables, seeds, recorded)
        return _refilled(primals, [lower(g, some) for g in found])

    value = _plain(called.value, keep)
    return (value, vjp_fn, _plain(called.aux, keep)) if has_aux else (value, vjp_fn)


def _check_smooth(outs: list[Any]) -> None:
    for o in outs:
        if not (o.is_floating_point() or o.is_complex()):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {o.dtype}"
            )


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
    called = _Linear(func, primals, has_aux, "jvp(f, primals, tangents)")
    if strict and not all(o.requires_grad for o in called.outs):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
            "This is not allowed with strict=True."
        )
    value, tangent = _plain(called.value, called.keep), called.push(*tangents)
    return (value, tangent, _plain(called.aux, called.keep)) if has_aux else (value, tangent)


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """func's value and its derivative there, a function of tangents that may be called often."""
    called = _Linear(func, primals, False, "linearize(f, *primals)")
    return _plain(called.value, called.keep), called.push


class _Linear(_Called):
    """func's derivative at the primals: gradients of its result for seeds, which are linear in
    them, so that their own gradients are directional derivatives."""

    def __init__(
        self, func: Callable[..., Any], primals: Any, has_aux: bool, name: str, others: Any = ()
    ) -> None:
        super().__init__(func, primals, has_aux, name, others)
        smooth = [o.is_floating_point() or o.is_complex() for o in self.outs]
        with tenon.enable_grad():
            self.seeds = [
                tenon.ones_like(o).requires_grad_(s) for o, s in zip(self.outs, smooth, strict=True)
            ]
            before, pushing.on = pushing.on, True
            try:
                self.rows = _gradients(self.outs, self.variables, self.seeds, True)
            finally:
                pushing.on = before
        self.wanted = [s for s in self.seeds if s.requires_grad]

    def push(self, *tangents: Any) -> Any:
        """The result's tangents for those of the primals."""
        some, both = self.levels, zip(flat(tangents), self.rows, strict=True)
        given = [(r, lift(t, some).expand_as(r)) for t, r in both]
        pairs = [(r, t) for r, t in given if r.requires_grad]
        found: Any = [None] * len(self.wanted)
        if pairs:
            found = tenon.autograd.grad(
                [r for r, _ in pairs], self.wanted, [t for _, t in pairs], retain_graph=True,
                create_graph=self.keep or _recorded(tangents), allow_unused=True,
            )  # fmt: skip
        filled = [tenon.zeros_like(o) if f is None else f
                  for o, f in zip(self.outs, self.by_output(found), strict=True)]  # fmt: skip
        return _refilled(self.value, [lower(f, some) for f in filled])

    def by_output(self, slopes: Any) -> list[Any]:
        """One for each result: None for those without derivatives."""
        rest = iter(slopes)
        return [next(rest) if s.requires_grad else None for s in self.seeds]


def _check_chunks(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")


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
    chunk_size: how many of its elements are computed at once where they are many."""
    _check_chunks(chunk_size)

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _check_real("jacrev", "inputs", args)
        chosen = _chosen(args, argnums)
        others = _others(args, argnums)

        def of_chosen(value: Any) -> Any:
            return func(*_replaced(others[0], argnums, value))

        called = _Called(of_chosen, (chosen,), has_aux, "vjp(f, *primals)", others)
        _check_smooth(called.outs)
        _check_real("jacrev", "outputs", called.value)
        leaves, keep = list(flat(chosen)), tenon.is_grad_enabled() and called.keep
        blocks = []
        for out, whole in zip(called.inside, called.outs, strict=True):
            with tenon.enable_grad():
                found = rows.of_elements(whole, out.shape, called.variables, keep, chunk_size)
            shapes = [(*out.shape, *leaf.shape) for leaf in leaves]
            blocks.append([_block(f, shape, leaf, called.levels)
                           for f, shape, leaf in zip(found, shapes, leaves)])  # fmt: skip
        jacobian = _refilled(called.value, [_refilled(chosen, block) for block in blocks])
        return (jacobian, _plain(called.aux, called.keep)) if has_aux else jacobian

    return wrapped


def _block(found: Any, shape: Any, like: Any, some: list[Any]) -> Any:
    """A part of a Jacobian from its rows, (rows, *elements of vmaps, *those of the argument)."""
    if found is None:
        return like.new_zeros(shape)
    return lower(found.movedim(0, len(some)), some).reshape(shape)


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
            return jacrev(func, argnums, has_aux, chunk_size=chunk_size)(*args)
        chosen = _chosen(args, argnums)
        others = _others(args, argnums)

        def of_chosen(value: Any) -> Any:
            return func(*_replaced(others[0], argnums, value))

        name = "jvp(f, primals, tangents)"
        called = _Linear(of_chosen, (chosen,), has_aux, name, others)
        _check_real("jacfwd", "outputs", called.value)
        leaves = list(flat(chosen))
        blocks: list[list[Any]] = [[] for _ in called.outs]
        for leaf, row in zip(leaves, called.rows, strict=True):
            found = rows.of_elements(row, leaf.shape, called.wanted, called.keep, chunk_size)
            for out, columns, block in zip(called.outs, called.by_output(found), blocks):
                shape = (*out.shape, *leaf.shape)
                block.append(
                    out.new_zeros(shape) if columns is None
                    else columns.movedim(0, -1).reshape(shape)
                )  # fmt: skip
        jacobian = _refilled(called.value, [_refilled(chosen, block) for block in blocks])
        return (jacobian, _plain(called.aux, called.keep)) if has_aux else jacobian

    return wrapped


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of func."""
    return jacrev(jacrev(func, argnums), argnums)
