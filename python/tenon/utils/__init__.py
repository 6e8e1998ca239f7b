"""Helpers around training: data, checkpoints, hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon._submodules import on_demand

if TYPE_CHECKING:
    from tenon.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

on_demand(globals())


def swap_tensors(t1: Any, t2: Any) -> None:
    """Each tensor becomes what the other is: values, shape, dtype, gradient, class, attributes.

    Only leaves can be swapped, and only where nobody has a weak reference to them.
    """
    import weakref

    import tenon

    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if not t.is_leaf:
            raise RuntimeError(f"Cannot swap {name}, which has a history: only leaves are swapped")
    facts = [(t.data, t.grad, t.requires_grad) for t in (t1, t2)]
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for t, (data, grad, wanted) in zip((t1, t2), reversed(facts), strict=True):
        with tenon.no_grad():
            t.grad = None
            t.requires_grad_(False)
            t.data = data
            t.requires_grad_(wanted)
            t.grad = grad
