"""What `tenon.library.opcheck` tries on an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import _C
from tenon._tensor.called import arguments_of, name_of
from tenon._tensor.methods import Tensor

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")


class OpCheckError(Exception):
    """An operator does not do what it says."""


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [t for v in values for t in _tensors(v)]


def _each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same structure with other tensors."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_each(change, v) for v in value)
    return {k: _each(change, v) for k, v in value.items()} if isinstance(value, dict) else value


def _fresh(value: Any) -> Any:
    """Copies of tensors, so that a test may write to them."""
    return _each(lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def _bound(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name. An operator of a plugin in C says their names in its schema."""
    signature = getattr(op, "_signature", None)
    if signature is not None:
        return dict(signature.bind(*args, **kwargs).arguments)
    return {**dict(zip(arguments_of(name_of(op)), args)), **kwargs}


def _written(op: Any) -> frozenset[str]:
    found = getattr(op, "_written", None)
    if found is not None:
        return frozenset(found)
    return frozenset(name for name, written in arguments_of(name_of(op)).items() if written)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool((a.detach() == b.detach()).logical_or((a != a).logical_and(b != b)).all())


def test_schema(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Only announced arguments are written, and no result is one of the arguments."""
    with _C.no_grad():
        used, used_kw = _fresh(args), _fresh(kwargs)
        out = op(*used, **used_kw)
    written = _written(op)
    bound, before = _bound(op, used, used_kw), _bound(op, args, kwargs)
    for name, value in bound.items():
        for now, then in zip(_tensors(value), _tensors(before[name]), strict=True):
            if name not in written and not _same(now, then):
                raise OpCheckError(f"argument '{name}' was written to, which mutates_args omits")
            if any(now.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
                   for t in _tensors(out) if t.numel() and now.numel()):  # fmt: skip
                raise OpCheckError(f"a result shares memory with argument '{name}'; return a copy")


def test_autograd_registration(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Where an argument requires grad, there is a backward, and it gives gradients that fit."""
    used, used_kw = _fresh(args), _fresh(kwargs)
    inputs = [t for t in _tensors((used, used_kw)) if t.requires_grad]
    if not inputs:
        return
    out = [t for t in _tensors(op(*used, **used_kw)) if t.requires_grad]
    if not out:
        raise OpCheckError("no result requires grad although an argument does")
    total = sum(t.real.sum() if t.is_complex() else t.sum() for t in out)
    total.backward()  # which raises where a gradient does not fit


def _on_meta(value: Any) -> Any:
    return _each(lambda t: t.detach().to("meta"), value)


def test_faketensor(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Results without data, of what register_fake was given or of an operator in C on meta tensors,
    have the shapes and dtypes of the real ones."""
    in_python = hasattr(op, "_signature")
    fake = getattr(op, "_fake", None) if in_python else op
    if fake is None:
        return
    change, how = (_fresh, "what register_fake was given") if in_python else (_on_meta, "meta")
    with _C.no_grad():
        real = _tensors(op(*_fresh(args), **_fresh(kwargs)))
        made = _tensors(fake(*change(args), **change(kwargs)))
    facts = [[(tuple(t.shape), t.dtype, *([t.device] if in_python else [])) for t in some]
             for some in (real, made)]  # fmt: skip
    if facts[0] != facts[1]:
        raise OpCheckError(f"the operator makes {facts[0]}, {how} {facts[1]}")


def run(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str], raising: bool
) -> dict[str, str]:
    known: dict[str, Callable[..., None]] = {
        "test_schema": test_schema,
        "test_autograd_registration": test_autograd_registration,
        "test_faketensor": test_faketensor,
    }
    found = {}
    for name in names:
        if name not in known:
            raise ValueError(f"opcheck(): there is no test {name!r}, only {', '.join(known)}")
        try:
            known[name](op, args, kwargs)
            found[name] = "SUCCESS"
        except Exception as err:
            if raising:
                raise OpCheckError(f"opcheck(): {name} of {op}: {err}") from err
            found[name] = str(err)
    return found
