"""Derivatives of functions: products with Jacobians and Hessians, and the matrices themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon._transform import rows

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Fn = Callable[..., Any]


def _fresh(inputs: Any, create_graph: bool, name: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether inputs is a tuple, and copies that record gradients."""
    several, tensors = _tuple(inputs, f"inputs given to {name}")
    inside = tenon._C._transform_runs() and not create_graph
    if inside or any(hasattr(x, "_stands_for_many") for x in tensors):
        from tenon._transform import vmap

        raise RuntimeError(vmap.NO_HISTORY_IN_A_TRANSFORM)  # a constant to the transform
    return several, tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in tensors
    )


def _tuple(values: Any, name: str) -> tuple[bool, tuple[Tensor, ...]]:
    several = isinstance(values, tuple)
    tensors = values if several else (values,)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            what = f"the value at index {i} has type" if several else "the given value has type"
            raise TypeError(
                f"The {name} must be either a Tensor or a tuple of Tensors but {what} {type(x)}."
            )
    return several, tensors


def _as_tuple(inp: Any, arg_name: str | None = None, fn_name: str | None = None) -> Any:
    """Whether it is a tuple of tensors, and that tuple; without names the tuple alone."""
    if arg_name is None and fn_name is None:
        return tuple(inp) if isinstance(inp, (tuple, list)) else (inp,)
    return _tuple(inp, f"{arg_name} given to {fn_name}")


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """The opposite of _as_tuple, for one tuple or for tuples inside a tuple."""
    outer, inner = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    if not inner:
        res = tuple(el[0] for el in res)
    return res if outer else res[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Results without history, but where gradients of them are wanted."""
    if not isinstance(inputs[0], Tensor):
        return tuple(_grad_postprocess(inp, create_graph) for inp in inputs)
    return inputs if create_graph else tuple(inp.detach() for inp in inputs)


def _construct_standard_basis_for(
    tensors: tuple[Tensor, ...], tensor_numels: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """The rows of the identity over all elements, cut into the tensors' columns."""
    total, start, parts = sum(tensor_numels), 0, []
    for tensor, numel in zip(tensors, tensor_numels, strict=True):
        part = tensor.new_zeros(total, numel)
        part.diagonal(-start).fill_(1)
        parts.append(part)
        start += numel
    return tuple(parts)


def _outputs(values: Any, strict: bool, name: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether func returned a tuple, and its tensors; in strict mode they must be recorded."""
    several, ys = _tuple(values, f"outputs of the user-provided function given to {name}")
    for i, y in enumerate(ys):
        if strict and not y.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. "
                "The outputs must be computed in a differentiable manner from the input when "
                "running in strict mode."
            )
    return several, ys


def _plain(values: tuple[Tensor, ...], several: bool, create_graph: bool) -> Any:
    if not create_graph:
        values = tuple(v.detach() for v in values)
    return values if several else values[0]


_OUTPUT = "The output of the user-provided function"
_FIRST = "The jacobian of the user-provided function"


def _check_used(grads: Sequence[Tensor | None], strict: bool, what: str) -> None:
    for i, g in enumerate(grads):
        if strict and g is None:
            raise RuntimeError(
                f"{what} is independent of input {i}. This is not allowed in strict mode."
            )


def _filled(
    grads: tuple[Tensor | None, ...], likes: tuple[Tensor, ...], strict: bool,
    what: str = _OUTPUT,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Zeros in the place of gradients that are not there."""
    _check_used(grads, strict, what)
    return tuple(tenon.zeros_like(x) if g is None else g for g, x in zip(grads, likes))


def _check_rows(rows: tuple[Tensor, ...], strict: bool) -> None:
    """First derivatives, of which second ones are wanted."""
    for i, g in enumerate(rows):
        if strict and not g.requires_grad:
            raise RuntimeError(
                f"{_FIRST} with respect to input {i} is independent of the inputs. This is not "
                "allowed in strict mode."
            )


def _checked_v(v: Any, likes: tuple[Tensor, ...], what: str, name: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(likes) != 1 or likes[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {what} a single Tensor with a single element."
            )
        return (tenon.ones_like(likes[0]),)
    _, vs = _tuple(v, f"v given to {name}")
    if len(vs) != len(likes):
        if len(likes) == 1:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(likes)} but got {len(vs)}."
        )
    for i, (a, b) in enumerate(zip(vs, likes)):
        if a.shape != b.shape:
            which = f"Entry {i} in " if len(likes) > 1 else ""
            raise RuntimeError(f"{which}v has invalid size: should be {b.shape} but got {a.shape}.")
    return vs


def _grad(outputs: Any, inputs: Any, seeds: Any, create_graph: bool) -> tuple[Any, ...]:
    pairs = [(o, s) for o, s in zip(outputs, seeds) if o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return tenon.autograd.grad(
        [o for o, _ in pairs],
        inputs,
        [s for _, s in pairs],
        create_graph=create_graph,
        retain_graph=True,
        allow_unused=True,
    )


def vjp(
    func: _Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """func(inputs), and v times its Jacobian."""
    with tenon.enable_grad():
        several, xs = _fresh(inputs, create_graph, "vjp")
        many, ys = _outputs(func(*xs), strict, "vjp")
        vs = _checked_v(v, ys, "the user-provided function returns", "vjp")
    with tenon.set_grad_enabled(create_graph or tenon.is_grad_enabled()):
        answer = _filled(_grad(ys, xs, vs, create_graph), xs, strict)
    return _plain(ys, many, create_graph), _plain(answer, several, create_graph)


def jvp(
    func: _Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """func(inputs), and its Jacobian times v: backward of a backward that is linear in its seed."""
    with tenon.enable_grad():
        _, xs = _fresh(inputs, create_graph, "jvp")
        vs = _checked_v(v, xs, "the input to the user-provided function is", "jvp")
        many, ys = _outputs(func(*xs), strict, "jvp")
        seeds = tuple(tenon.ones_like(y).requires_grad_() for y in ys)  # formulas look at signs
        rows = _filled(_grad(ys, xs, seeds, True), xs, strict)
    with tenon.set_grad_enabled(create_graph or tenon.is_grad_enabled()):
        answer = _filled(_grad(rows, seeds, vs, create_graph), ys, strict)
    return _plain(ys, many, create_graph), _plain(answer, many, create_graph)


def _scalar(func: _Fn, name: str, strict: bool) -> _Fn:
    """func, whose single output must have one element."""

    def checked(*xs: Tensor) -> Tensor:
        out = func(*xs)
        _tuple(out, f"outputs of the user-provided function given to {name}")
        if isinstance(out, tuple):
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if out.numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {name} should contain a single "
                "element"
            )
        _outputs(out, strict, name)
        return out.reshape(()) if out.ndim else out

    return checked


def jacobian(
    func: _Fn,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for each output and input a tensor of shape output.shape + input.shape."""
    return _jacobian(func, inputs, create_graph, strict, vectorize, strategy, "jacobian")


def _jacobian(
    func: _Fn, inputs: Any, create_graph: bool, strict: bool, vectorize: bool, strategy: str,
    name: str,
) -> Any:  # fmt: skip
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            f'Expected strategy to be "forward-mode" or "reverse-mode": {strategy}'
        )
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    with tenon.enable_grad():
        several, xs = _fresh(inputs, create_graph, name)
        many, ys = _outputs(func(*xs), strict, name)
        blocks = []
        for i, y in enumerate(ys):
            found = rows.of_elements(y, y.shape, xs, create_graph)
            what = f"Output {i} of the user-provided function"
            _check_used(found if y.numel() else (), strict, what)
            blocks.append(tuple(
                x.new_zeros((*y.shape, *x.shape)) if g is None else g.view((*y.shape, *x.shape))
                for g, x in zip(found, xs)
            ))  # fmt: skip
    results = tuple(_plain(block, several, create_graph) for block in blocks)
    return results if many else results[0]


def hessian(
    func: _Fn,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The matrix of second derivatives of a function with one number as its result."""
    several = isinstance(inputs, tuple)
    scalar = _scalar(func, "hessian", strict)

    def gradient(*xs: Tensor) -> tuple[Tensor, ...]:
        recorded = tuple(x if x.requires_grad else x.requires_grad_() for x in xs)
        y = scalar(*recorded)
        grads = _grad((y,), recorded, (tenon.ones_like(y),), True)
        rows = _filled(grads, recorded, strict)
        _check_rows(rows, strict)
        return rows

    result = _jacobian(gradient, inputs, create_graph, strict, vectorize, "reverse-mode", "hessian")
    return result if several else result[0]


def vhp(
    func: _Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """func(inputs), and v times its Hessian."""
    return _hessian_product(func, inputs, v, create_graph, strict, "vhp")


def _hessian_product(
    func: _Fn, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> tuple[Any, Any]:
    with tenon.enable_grad():
        several, xs = _fresh(inputs, create_graph, name)
        vs = _checked_v(v, xs, "the input to the user-provided function is", name)
        y = _scalar(func, name, strict)(*xs)
        grads = _filled(_grad((y,), xs, (tenon.ones_like(y),), True), xs, strict)
        _check_rows(grads, strict)
    with tenon.set_grad_enabled(create_graph or tenon.is_grad_enabled()):
        answer = _filled(_grad(grads, xs, vs, create_graph), xs, strict, _FIRST)
    return _plain((y,), False, create_graph), _plain(answer, several, create_graph)


def hvp(
    func: _Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """func(inputs), and its Hessian times v; the Hessian is symmetric, so this is vhp."""
    return _hessian_product(func, inputs, v, create_graph, strict, "hvp")
