"""Forward-mode differentiation: tensors that carry a tangent through the operators they meet.

Note [Forward rules]: an operator's entry in the table says how a gradient g of its results becomes
gradients of its arguments, which is linear in g. So the derivative of that by g, taken in the
direction of the arguments' tangents, is the tangent of the results: every operator with a gradient
has a forward rule, with nothing written twice. It is applied call by call, by a mode that sees
them, so that nothing of a call is kept once its tangents are known.

What no mode sees has no tangents: attributes such as `.T`.

Note [Written parts]: a write to a view changes the tensor that it is a part of, the root, and other
parts of that. The root gets a tangent that lies in memory as it does, the write goes to the same
window of that, too, and every part's tangent is its window from then on: also of parts that were
taken before there was any tangent, when they are next met. A tangent that was given to make_dual
is itself written, where it lies as its tensor does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import tenon
from tenon import _C, Tensor
from tenon._tape import asking_members, call_modes
from tenon._tape.call_modes import TorchFunctionMode
from tenon._tensor.called import name_of, writes_first

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
           "unpack_dual"]  # fmt: skip


class UnpackedDualTensor(NamedTuple):
    """What unpack_dual returns; without a tangent there is None."""

    primal: Tensor
    tangent: Tensor | None


def _takes_tangent(t: Any) -> bool:
    return isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())


def _mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """The same arguments or results, with other tensors in lists and tuples as well."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(change, v) for v in value))
    if isinstance(value, (list, tuple)):
        parts = [_mapped(change, v) for v in value]
        named = type(value) not in (list, tuple)
        return type(value)(parts) if named or isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {k: _mapped(change, v) for k, v in value.items()}
    return value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _mapped(lambda t: found.append(t) or t, value)
    return found


def _pushed(
    outs: list[Tensor], variables: list[Tensor], tangents: list[Tensor], keep: bool
) -> list[Tensor]:
    """The tangents of results, as the note above says."""
    # linear in the seeds, but some formulas look at signs: not at 0
    seeds = [tenon.ones_like(o).requires_grad_() for o in outs]
    rows = tenon.autograd._grad(tuple(outs), tuple(variables), tuple(seeds), True, True, True)
    linear = [(r, t) for r, t in zip(rows, tangents) if r is not None and r.requires_grad]
    found: Any = [None] * len(seeds)
    if linear:
        found = tenon.autograd._grad(
            tuple(r for r, _ in linear), tuple(seeds), tuple(t for _, t in linear), True, keep, True
        )
    return [tenon.zeros_like(o) if f is None else f for o, f in zip(outs, found)]


def _note(table: dict[int, tuple[Any, Tensor]], t: Tensor, value: Tensor) -> None:
    """Keeps a value for t in a table for as long as t is there."""
    key = id(t)

    def forget(ref: Any) -> None:
        if table.get(key, (None,))[0] is ref:
            del table[key]

    table[key] = (weakref.ref(t, forget), value)


def _reach(t: Tensor) -> int:
    """How many places of memory t spans."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0


def _window(whole: Tensor, root: Tensor, t: Tensor) -> Tensor:
    """The part of root's tangent that belongs to t, a part of root."""
    if t.dtype is not root.dtype:
        raise NotImplementedError(
            "forward-mode differentiation does not follow writes into parts of a tensor that are "
            "read as another dtype; clone it first"
        )
    at = whole.storage_offset() + t.storage_offset() - root.storage_offset()
    return whole.as_strided(t.shape, t.stride(), at)


_MEMBERS = ("detach_", "set_")


class _Level(TorchFunctionMode):
    """The tangents of one level, by the identity of the tensors that carry them."""

    sees_members = False
    some_members = _MEMBERS

    def __init__(self) -> None:
        self.held: dict[int, tuple[Any, Tensor]] = {}
        self.roots: dict[int, tuple[Any, Tensor]] = {}  # of views: what they are parts of
        self.wholes: dict[int, Any] = {}  # roots that parts were written of
        # What recorded results begin at, with tangents: what make_dual has made of tensors that
        # require gradients, and what stands in such results for dual tensors that require none.
        self.sources: list[tuple[Tensor, Tensor]] = []

    def put(self, t: Tensor, tangent: Tensor) -> None:
        _note(self.held, t, tangent)

    def get(self, t: Any) -> Tensor | None:
        ref, tangent = self.held.get(id(t), (None, None))
        if ref is not None and ref() is t:
            return tangent
        if self.wholes and isinstance(t, Tensor) and t._is_view():
            base = t._base
            if base is not None and self.wholes.get(id(base), lambda: None)() is base:
                part = _window(self.held[id(base)][1], base, t)
                self.put(t, part)
                _note(self.roots, t, base)
                return part
        return None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        duals = {id(t): t for t in _tensors((args, kwargs)) if self.get(t) is not None}
        if not duals:
            return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise RuntimeError(
                f"{func.__name__}(): functions with out=... arguments don't support forward-mode "
                "differentiation, but one of the arguments has a tangent"
            )
        name = name_of(func)
        if name == "set_" and self.get(args[0]) is not None:
            raise RuntimeError(
                "set_(): a tensor with a tangent cannot get other memory; cannot resize variables "
                "that has a forward grad"
            )
        if name in _HEADER_ONLY and self.get(args[0]) is not None:
            return self._moved(name, func, args, kwargs)
        writes = writes_first(name) or (name.startswith("__i") and name[3:-2] in _IN_PLACE)
        return self._written(func, args, kwargs) if writes else self._called(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any, fresh: Any) -> tuple[Any, Any, Any, bool]:
        """func on variables: its result, these, their tangents, and whether to go on recording."""
        made: dict[int, tuple[Tensor, Tensor]] = {}
        given = [t for t in _tensors((args, kwargs))]
        given += [g for g in map(self.get, given) if g is not None]
        keep = tenon.is_grad_enabled() and any(t.requires_grad for t in given)

        def variable(t: Tensor) -> Tensor:
            tangent = self.get(t)
            if tangent is None:
                return t
            if id(t) not in made:
                own = keep and t.requires_grad
                v = t.view_as(t) if own else t.detach().requires_grad_()
                made[id(t)] = (v, tangent)
                if keep and not own:
                    self.sources.append((v, tangent.clone()))
            return made[id(t)][0]

        with tenon.enable_grad():
            new_args, new_kwargs = _mapped(variable, args), _mapped(variable, kwargs)
            result = fresh(func, new_args, new_kwargs)
        pairs = list(made.values())
        return result, [v for v, _ in pairs], [t for _, t in pairs], keep

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        result, variables, tangents, keep = self._run(
            func, args, kwargs, lambda f, a, k: f(*a, **k)
        )
        outs = [t for t in _tensors(result) if t.requires_grad and _takes_tangent(t)]
        with tenon.enable_grad():
            pushed = _pushed(outs, variables, tangents, keep) if outs else []
        found = {id(o): t for o, t in zip(outs, pushed, strict=True)}
        given = [t for t in _tensors((args, kwargs)) if self.get(t) is not None]
        old = {t._storage_id() for t in tangents if t.layout is tenon.strided}

        def handed(t: Tensor) -> Tensor:
            back = t if keep or not t.requires_grad else t.detach()
            if id(t) not in found:
                return back
            tangent = found[id(t)]
            root = next((g for g in given if g._storage_id() == t._storage_id()), None)
            if root is not None:
                _note(self.roots, back, self._root_of(root))
            elif tangent.layout is tenon.strided and tangent._storage_id() in old:
                tangent = tangent.clone()  # a write to one is none to the other
            self.put(back, tangent)
            return back

        return _mapped(handed, result)

    def _moved(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A call that changes where the target looks, and writes nothing."""
        target = args[0]
        tangent = self.get(target)
        assert tangent is not None
        if name == "detach_" and self._root_of(target) is not target:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        if name == "as_strided_" and tangent.stride() != target.stride():
            like = tenon.empty_strided(target.shape, target.stride(), dtype=target.dtype,
                                       device=target.device)  # fmt: skip
            tangent = like.copy_(tangent)
        start = target.storage_offset()
        result = func(*args, **kwargs)
        if name == "detach_":
            self.held.pop(id(target), None)
            return result
        if name == "as_strided_":
            at = tangent.storage_offset() + target.storage_offset() - start
            tangent = tangent.as_strided(target.shape, target.stride(), at)
        else:
            tangent = getattr(tangent, name[:-1])(*args[1:], **kwargs)
        self.put(target, tangent)
        return result

    def _written(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call that writes its first argument: computed on a copy, which is written there. The
        tangent of the whole tensor that it is a part of takes the part's in."""
        target = args[0]
        root = self._root_of(target)
        whole = self._whole(root)
        if target is not root:
            _note(self.roots, target, root)
        had = self.get(target)
        if had is None:
            self.put(target, _window(whole, root, target))

        def on_copy(f: Any, a: Any, k: Any) -> Tensor:
            copy = a[0].clone()
            f(copy, *a[1:], **k)
            return copy

        try:
            result, variables, tangents, keep = self._run(func, args, kwargs, on_copy)
            with tenon.enable_grad():
                (pushed,) = _pushed([result], variables, tangents, keep)
        except BaseException:
            if had is None:
                self.held.pop(id(target), None)
            raise
        if keep:
            target.copy_(result)
        else:
            target.detach().copy_(result.detach())
        with tenon.set_grad_enabled(keep):
            _window(whole, root, target).copy_(pushed)
        others = [ref() for ref, _ in list(self.held.values())]
        self.put(root, whole)
        for t in (target, *(o for o in others if o is not None)):
            if t is not root and self._root_of(t) is root:
                self.put(t, _window(whole, root, t))
        self.wholes[id(root)] = weakref.ref(root)
        return target

    def grad(
        self,
        roots: tuple[Tensor, ...],
        wanted: tuple[Tensor, ...],
        gradients: tuple[Tensor | None, ...] | None,
        retain: bool,
        create_graph: bool,
        *options: bool,
    ) -> tuple[Tensor, ...]:
        """autograd.grad, whose results have the tangents that the dual tensors give them: a
        gradient is recorded, and moves with them as any result does."""
        if all(self.get(t) is None for t in (*roots, *(gradients or ()))):
            return tenon.autograd._grad(roots, wanted, gradients, retain, create_graph, *options)
        pairs = list(self.sources)
        # Dual tensors that were asked to require gradients after they had been made.
        for ref, tangent in list(self.held.values()):
            t = ref()
            if t is not None and t.requires_grad and t.is_leaf:
                pairs += [] if any(t is v for v, _ in pairs) else [(t, tangent)]
        if any(id(t) in self.wholes for t, _ in pairs):
            raise NotImplementedError(
                "grad(): a tensor with a tangent has been written in place, and how gradients "
                "move with what it was is not recorded; func.jvp of func.grad tells"
            )
        seeds = list(gradients or ())
        for i, g in enumerate(seeds):
            if (tangent := self.get(g)) is not None and not any(g is t for t, _ in pairs):
                seeds[i] = g if g.requires_grad else g.detach().requires_grad_()
                pairs.append((seeds[i], tangent))
        given = tuple(seeds) if gradients is not None else None
        results = tenon.autograd._grad(roots, wanted, given, True, True, *options)
        outs = [g for g in results if g is not None and g.requires_grad]
        outs = outs if pairs else []
        with tenon.enable_grad():
            variables, tangents = [v for v, _ in pairs], [t for _, t in pairs]
            pushed = _pushed(outs, variables, tangents, create_graph) if outs else []
        found = {id(g): t for g, t in zip(outs, pushed, strict=True)}

        def handed(g: Any) -> Any:
            back = g if create_graph or g is None else g.detach()
            if id(g) in found:
                self.put(back, found[id(g)])
            return back

        return tuple(map(handed, results))

    def _root_of(self, t: Tensor) -> Tensor:
        """What t is a part of: what was a dual tensor when t was taken, or a tensor without one."""
        ref = self.roots.get(id(t), (None, None))
        root = ref[1] if ref[0] is not None and ref[0]() is t else None
        if root is not None:
            return root
        base = t._base if t._is_view() and self.held.get(id(t)) is None else None
        return t if base is None else base

    def _whole(self, root: Tensor) -> Tensor:
        """Root's tangent where it lies in memory as root does and may be written; else a copy that
        does."""
        if root.layout is not tenon.strided or root.numel() != _reach(root):
            raise NotImplementedError(
                "forward-mode differentiation does not follow writes into parts of tensors whose "
                "elements are not side by side in memory; clone them first"
            )
        tangent = self.get(root)
        if tangent is not None and tangent.layout is tenon.strided:
            fixed = tangent.requires_grad and tangent.is_leaf
            if tangent.stride() == root.stride() and not fixed:
                return tangent
        whole = tenon.empty_strided(
            root.shape, root.stride(), dtype=root.dtype, device=root.device
        ).zero_()
        return whole if tangent is None else whole.copy_(tangent)

    def apply_function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """A Function of the program: by its own jvp, or by what its backward says."""
        own = type(self)._jvp_of(cls)
        if own is None:
            return self._called(lambda *a: _C._apply(cls, a), args, {})
        given = [self.get(a) for a in args]

        def push(ctx: Any, result: Any, dirty: Any, constant: Any) -> None:
            zeros = ctx.materialize_grads
            tangents = [tenon.zeros_like(a) if t is None and zeros and _takes_tangent(a) else t
                        for a, t in zip(args, given, strict=True)]  # fmt: skip
            pushed = own(ctx, *tangents)
            outs = result if isinstance(result, tuple) else (result,)
            pushed = pushed if isinstance(pushed, tuple) else (pushed,)
            if len(pushed) != len(outs):
                raise RuntimeError(
                    f"The jvp function of {cls.__name__} returned {len(pushed)} tangents for "
                    f"{len(outs)} outputs of forward"
                )
            for out, tangent in zip(outs, pushed, strict=True):
                self._check_pushed(cls, out, tangent, constant or ())
                place = next((i for i, a in enumerate(args) if a is out), None)
                if any(out is d for d in dirty or ()) and tangent is not tangents[place or 0]:
                    raise RuntimeError(
                        "An inplace custom Function is not modifying the forward mode gradients "
                        "inplace. If the forward is modifying an input inplace, then the jvp "
                        "function must modify the corresponding gradient inplace."
                    )
                if tangent is not None:
                    self.put(out, tangent)

        return _C._apply(cls, args, push)

    @staticmethod
    def _jvp_of(cls: Any) -> Any:
        from tenon.autograd.function import Function

        return None if cls.jvp is Function.jvp else cls.jvp

    @staticmethod
    def _check_pushed(cls: Any, out: Any, tangent: Any, constant: Any) -> None:
        if tangent is None:
            return
        if not _takes_tangent(out) or any(out is c for c in constant):
            raise RuntimeError(
                "The jvp function returned a gradient at a position where the output of "
                f"{cls.__name__} is not differentiable. You should return None at that position "
                "instead."
            )
        if not isinstance(tangent, Tensor) or tangent.shape != out.shape:
            shape = tuple(tangent.shape) if isinstance(tangent, Tensor) else type(tangent)
            raise RuntimeError(
                f"The jvp function of {cls.__name__} returned {shape} as the tangent of an output "
                f"of shape {tuple(out.shape)}"
            )


_HEADER_ONLY = {"as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
                "unsqueeze_"}  # fmt: skip
_IN_PLACE = ("add", "sub", "mul", "truediv", "pow", "matmul")
_current: list[_Level] = []
_current_level = -1  # packages read it: 0 inside of a level


def any_dual(args: tuple[Any, ...]) -> bool:
    """Whether one of them carries a tangent."""
    return bool(_current) and any(_current[-1].get(a) is not None for a in args)


def apply_function(cls: Any, args: tuple[Any, ...]) -> Any:
    """A Function of the program, some of whose arguments carry tangents."""
    mode = _current[-1]
    mode.__exit__()  # what forward computes of them is the Function's own affair
    try:
        return mode.apply_function(cls, args)
    finally:
        mode.__enter__()


def enter_dual_level() -> int:
    """Starts a level, in which tensors carry tangents; returns its number."""
    global _current_level
    if _current:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = _Level()
    asking_members.lend(1, _MEMBERS)
    level.__enter__()
    _current.append(level)
    _current_level = 0
    return 0


def _level_in_use() -> _Level | None:
    """The level, if gradients may move with its dual tensors and it is not busy with them."""
    return next((m for m in _current if m.held and m in call_modes.functions()), None)


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level; its tangents are gone."""
    global _current_level
    if not _current or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. "
            "This is not supported."
        )
    _current.pop().__exit__()
    asking_members.lend(-1, _MEMBERS)
    _current_level = -1


class dual_level:
    """`with dual_level(): ...`: a level for the block."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of the tensor that carries the tangent through what is computed with it."""
    if not _current or level not in (None, 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for value, what in ((tensor, "primal"), (tangent, "tangent")):
        if not _takes_tangent(value):
            raise ValueError(
                f"Expected {what} to be floating point or complex, but got: {value.dtype}"
            )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    if tensor.dtype != tangent.dtype or tensor.device != tangent.device:
        raise RuntimeError(
            f"Expected tangent to have the dtype and device of its primal, {tensor.dtype} on "
            f"{tensor.device}, but it has {tangent.dtype} on {tangent.device}"
        )
    mode = _current[-1]
    if mode.get(tensor) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    if mode.get(tangent) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level 0 is not "
            "supported."
        )
    mode.__exit__()  # the view is not to carry what `tensor` may carry
    try:
        dual = tensor.view_as(tensor)
    finally:
        mode.__enter__()
    mode.put(dual, tangent)
    if dual.requires_grad:
        mode.sources.append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent, and that tangent."""
    if not _current or level not in (None, 0):
        return UnpackedDualTensor(tensor, None)
    mode = _current[-1]
    tangent = mode.get(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    mode.__exit__()
    try:
        return UnpackedDualTensor(tensor.view_as(tensor), tangent)
    finally:
        mode.__enter__()
