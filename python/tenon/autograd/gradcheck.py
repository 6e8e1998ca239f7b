"""gradcheck and gradgradcheck: backward against finite differences.

Note [Complex derivatives]: a real loss L of a complex input z has the gradient dL/dx + i dL/dy, and
backward maps the gradient v of an output to the gradient of an input. Both sides are compared as
real Jacobians: an input or output of complex numbers counts as pairs of real ones. Column i of the
numerical Jacobian comes from moving one real number of the input; a row of the analytical one comes
from backward with one real number of the output's gradient set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.autograd import forward_ad
from tenon.testing import make_tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient is wrong."""


def _differentiable(values: Any) -> list[Tensor]:
    values = (values,) if isinstance(values, Tensor) else values
    return [
        v for v in values if isinstance(v, Tensor) and (v.is_floating_point() or v.is_complex())
    ]


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    return _differentiable(func(*inputs))


def _real_row(t: Tensor) -> list[float]:
    """The elements as real numbers, complex ones as pairs."""
    t = t.detach()
    if t.is_complex():
        t = tenon.view_as_real(t)
    return t.reshape(-1).tolist()


def _count(t: Tensor) -> int:
    return t.numel() * (2 if t.is_complex() else 1)


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], moved: Tensor, eps: float
) -> list[list[list[float]]]:
    """For each output, a list of columns: d output / d (real number i of `moved`)."""
    data = moved.detach()
    flat = (tenon.view_as_real(data) if data.is_complex() else data).view(-1)
    columns: list[list[list[float]]] = []
    for i in range(flat.numel()):
        old = float(flat[i])
        sides = []
        for value in (old + eps, old - eps):
            flat[i] = value
            sides.append([_real_row(out) for out in _outputs(func, inputs)])
        flat[i] = old
        for k, (high, low) in enumerate(zip(*sides)):
            if len(columns) <= k:
                columns.append([])
            columns[k].append([(h - lo) / (2 * eps) for h, lo in zip(high, low)])
    return columns


def _analytical(output: Tensor, inputs: Sequence[Tensor]) -> list[list[list[float]]]:
    """For each input, a list of rows: d (real number j of `output`) / d input."""
    rows: list[list[list[float]]] = [[] for _ in inputs]
    for j in range(_count(output)):
        seed = tenon.zeros(tuple(output.shape), dtype=output.dtype, device=output.device)
        flat = (tenon.view_as_real(seed) if seed.is_complex() else seed).view(-1)
        flat[j] = 1.0
        grads = tenon.autograd.grad(output, inputs, seed, retain_graph=True, allow_unused=True)
        for k, (grad, x) in enumerate(zip(grads, inputs)):
            if grad is not None and grad.shape != x.shape:
                raise GradcheckError(
                    f"backward returned a gradient of shape {tuple(grad.shape)} for an input of "
                    f"shape {tuple(x.shape)}"
                )
            rows[k].append([0.0] * _count(x) if grad is None else _real_row(grad))
    return rows


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if a != a or b != b:
        return a != a and b != b
    return abs(a - b) <= atol + rtol * abs(b)


def _compare(
    rows: list[list[float]],
    columns: list[list[float]],
    rtol: float,
    atol: float,
    place: tuple[int, int],
) -> None:
    for j, row in enumerate(rows):
        for i, value in enumerate(row):
            expected = columns[i][j]
            if not _close(value, expected, rtol, atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {place[0]} with respect to input {place[1]},\n"
                    f"numerical: d output[{j}] / d input[{i}] = {expected!r}\n"
                    f"analytical: {value!r}\n"
                )


def _check_forward(
    func: Callable[..., Any], inputs: Sequence[Any], chosen: Sequence[Tensor], numerical: Any,
    rtol: float, atol: float,
) -> None:  # fmt: skip
    """Tangents of every result in the direction of every real number of the inputs."""
    for i, x in enumerate(chosen):
        for n in range(_count(x)):
            direction = tenon.zeros(tuple(x.shape), dtype=x.dtype, device=x.device)
            flat = tenon.view_as_real(direction) if x.is_complex() else direction
            flat.view(-1)[n] = 1.0
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x.detach(), direction)
                outputs = _outputs(func, [dual if t is x else t for t in inputs])
                tangents = [forward_ad.unpack_dual(o).tangent for o in outputs]
            for k, (output, tangent) in enumerate(zip(outputs, tangents)):
                row = [0.0] * _count(output) if tangent is None else _real_row(tangent)
                _compare([row], [[value] for value in numerical[i][k][n]], rtol, atol, (k, i))


def _checked_inputs(inputs: Sequence[Any]) -> list[Tensor]:
    chosen = [x for x in _differentiable(inputs) if x.requires_grad]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, "
            "but none of the them have requires_grad=True."
        )
    return chosen


def _check_repeatable(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], tolerance: float
) -> None:
    """Two backward passes give the same gradients, up to the tolerance."""
    for output in outputs:
        seed = tenon.ones_like(output)
        passes = [
            tenon.autograd.grad(output, inputs, seed, retain_graph=True, allow_unused=True)
            for _ in range(2)
        ]
        for a, b in zip(*passes):
            if a is not None and not all(
                _close(x, y, 0.0, tolerance) for x, y in zip(_real_row(a), _real_row(b))
            ):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and "
                    "grad_output multiple times gives different values, although analytical "
                    f"gradient matches numerical gradient. The tolerance is {tolerance}."
                )


def _check_undefined(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Gradients that are zero everywhere give zeros."""
    for output in outputs:
        grads = tenon.autograd.grad(
            output, inputs, tenon.zeros_like(output), retain_graph=True, allow_unused=True
        )
        for grad in grads:
            if grad is not None and any(x != 0 for x in _real_row(grad)):
                raise GradcheckError("backward not multiplied by grad_output")


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether backward of func agrees with finite differences for the inputs (float64 is best)."""
    if check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("gradcheck: batched gradients are not there yet")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    try:
        chosen = _checked_inputs(inputs)
        for x in chosen:
            x.retain_grad()
        if not check_backward_ad and not check_forward_ad:
            return True
        # Recording stays on: func may itself ask for gradients.
        numerical = [_numerical(func, inputs, x, eps) for x in chosen]
        if check_forward_ad:
            _check_forward(func, inputs, chosen, numerical, rtol, atol)
        if not check_backward_ad:
            return True
        every = _outputs(func, inputs)
        recorded = [(k, o) for k, o in enumerate(every) if o.requires_grad]
        outputs = [o for _, o in recorded]
        if not recorded:
            for i, columns in enumerate(numerical):
                for k, matrix in enumerate(columns):
                    if any(abs(v) > atol for column in matrix for v in column):
                        raise GradcheckError(
                            f"Numerical gradient for function expected to be zero (output {k}, "
                            f"input {i})"
                        )
            return True
        for k, output in recorded:
            for i, rows in enumerate(_analytical(output, chosen)):
                if rows and numerical[i]:
                    _compare(rows, numerical[i][k], rtol, atol, (k, i))
        _check_repeatable(outputs, chosen, nondet_tol)
        if check_undefined_grad:
            _check_undefined(outputs, chosen)
        if check_grad_dtypes:
            for _, output in recorded:
                grads = tenon.autograd.grad(
                    output, chosen, tenon.ones_like(output), retain_graph=True, allow_unused=True
                )
                for grad, x in zip(grads, chosen):
                    if grad is not None and grad.dtype != x.dtype:
                        raise GradcheckError("grad does not have the dtype of its input")
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """gradcheck of the gradients of func with respect to its inputs."""
    if check_fwd_over_rev or check_batched_grad:
        raise NotImplementedError("gradgradcheck: only reverse over reverse is there")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
    if grad_outputs is None:
        seeds = []
        for output in outputs:
            seed = make_tensor(
                tuple(output.shape), dtype=output.dtype, device=output.device, low=-1, high=1
            )
            if gen_non_contig_grad_outputs:
                seed = tenon.stack([seed, seed], -1).select(-1, 0)
            seeds.append(seed.requires_grad_())
    else:
        seeds = list(_differentiable(grad_outputs))
    n = len(seeds)

    def first_order(*args: Any) -> tuple[Tensor, ...]:
        own, grads = args[:-n], args[-n:]
        chosen = [x for x in _differentiable(own) if x.requires_grad]
        results = [o for o in _outputs(func, own) if o.requires_grad]
        answers = tenon.autograd.grad(results, chosen, grads, create_graph=True, allow_unused=True)
        return tuple(g for g in answers if g is not None)

    return gradcheck(
        first_order,
        (*inputs, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
    )
