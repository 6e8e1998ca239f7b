"""gradcheck and gradgradcheck: backward against finite differences.

Note [Complex derivatives]: a real loss L of a complex input z has the gradient dL/dx + i dL/dy, and
backward maps the gradient v of an output to the gradient of an input. Both sides are compared as
real Jacobians: an input or output of complex numbers counts as pairs of real ones. Column i of the
numerical Jacobian comes from moving one real number of the input; a row of the analytical one comes
from backward with one real number of the output's gradient set.
"""

from __future__ import annotations

import itertools
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


def _is_sparse(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is not tenon.strided


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    outputs = _differentiable(func(*inputs))
    return [out.to_dense() if _is_sparse(out) else out for out in outputs]


def _with_values(like: Tensor, values: Tensor) -> Tensor:
    if like.layout is tenon.sparse_coo:
        return tenon.sparse_coo_tensor(
            like._indices(), values, like.shape, is_coalesced=like.is_coalesced()
        )
    by_rows = like.layout in (tenon.sparse_csr, tenon.sparse_bsr)
    names = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    index, plain = (getattr(like, name)() for name in names)
    return tenon.sparse_compressed_tensor(index, plain, values, like.shape, layout=like.layout)


def _by_values(
    func: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of the values of sparse inputs, and the inputs with these in their place."""

    def of_values(*given: Any) -> Any:
        return func(*(_with_values(x, v) if _is_sparse(x) else v for x, v in zip(inputs, given)))

    def values_of(x: Any) -> Any:
        if not _is_sparse(x):
            return x
        values = x._values() if x.layout is tenon.sparse_coo else x.values()
        return values.detach().clone().requires_grad_(x.requires_grad)

    return of_values, tuple(map(values_of, inputs))


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
    real = tenon.view_as_real(data) if data.is_complex() else data
    columns: list[list[list[float]]] = []
    plain = _outputs(func, inputs)
    for place in itertools.product(*map(range, real.shape)):
        old = float(real[place])
        sides = []
        for value in (old + eps, old - eps):
            real[place] = value
            outs = _outputs(func, inputs)
            for what in ("shape", "dtype"):
                was, now = ([getattr(o, what) for o in some] for some in (plain, outs))
                if was != now:
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are "
                        f"perturbed, but got {now} and {was} without"
                    )
            sides.append([_real_row(out) for out in outs])
        real[place] = old
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
    forward: bool = False,
) -> None:
    how = " computed with forward mode" if forward else ""
    for j, row in enumerate(rows):
        for i, value in enumerate(row):
            expected = columns[i][j]
            if not _close(value, expected, rtol, atol):
                raise GradcheckError(
                    f"Jacobian{how} mismatch for output {place[0]} with respect to input "
                    f"{place[1]},\n"
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
                duals = {
                    id(t): forward_ad.make_dual(
                        t.detach(), direction if t is x else tenon.zeros_like(t.detach())
                    ).requires_grad_()  # func may ask for gradients
                    for t in chosen
                }
                outputs = _outputs(func, [duals.get(id(t), t) for t in inputs])
                tangents = [forward_ad.unpack_dual(o).tangent for o in outputs]
            for k, (output, tangent) in enumerate(zip(outputs, tangents)):
                row = [0.0] * _count(output) if tangent is None else _real_row(tangent)
                column = [[value] for value in numerical[i][k][n]]
                _compare([row], column, rtol, atol, (k, i), forward=True)


def _checked_inputs(inputs: Sequence[Any]) -> list[Tensor]:
    chosen = [x for x in _differentiable(inputs) if x.requires_grad]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, "
            "but none of the them have requires_grad=True."
        )
    for i, x in enumerate(chosen):
        strided = x.layout is tenon.strided and x.numel() > 0
        if strided and any(step == 0 and n > 1 for step, n in zip(x.stride(), x.shape)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients correctly. "
                "You should call .contiguous on the input before passing it to gradcheck."
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


def _check_zeros(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Gradients that are zero everywhere give zeros."""
    for output in outputs:
        grads = tenon.autograd.grad(
            output, inputs, tenon.zeros_like(output), retain_graph=True, allow_unused=True
        )
        for grad in grads:
            if grad is not None and any(x != 0 for x in _real_row(grad)):
                raise GradcheckError("backward not multiplied by grad_output")


class _Undefined(tenon.autograd.Function):
    """Passes tensors on, and no gradients back."""

    @staticmethod
    def forward(ctx: Any, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(v.clone() for v in values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        return (None,) * len(grads)


def _check_undefined(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Where no gradient comes in, none or zeros go out; where some outputs have none, it works."""
    without = [list(_Undefined.apply(*outputs))]
    for k in range(len(outputs) if len(outputs) > 1 else 0):
        without.append([*outputs[:k], *_Undefined.apply(outputs[k]), *outputs[k + 1 :]])
    for some in without:
        zeros = [tenon.zeros_like(o) for o in some]
        try:
            grads = tenon.autograd.grad(some, inputs, zeros, retain_graph=True, allow_unused=True)
        except RuntimeError as err:
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, got: {err}"
            ) from err
        if any(g is not None and any(x != 0 for x in _real_row(g)) for g in grads):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero"
            )


def _check_batched(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Gradients of several seeds at once are those of one by one."""
    failed = "gradcheck or gradgradcheck failed while testing batched gradient computation"
    for k, output in enumerate(outputs):
        seeds = make_tensor(
            (2, *output.shape), dtype=output.dtype, device=output.device, low=-1, high=1
        )
        more = {"retain_graph": True, "allow_unused": True}
        try:
            found = tenon.autograd.grad(output, inputs, seeds, is_grads_batched=True, **more)
        except RuntimeError as err:
            raise GradcheckError(f"{failed}: {err}") from err
        for n, seed in enumerate(seeds):
            for i, one in enumerate(tenon.autograd.grad(output, inputs, seed, **more)):
                many = found[i]
                if one is None and many is None:
                    continue
                got = [0.0] * len(_real_row(one)) if many is None else _real_row(many[n])
                want = [0.0] * len(got) if one is None else _real_row(one)
                if not all(_close(a, b, 1e-3, 1e-5) for a, b in zip(got, want)):
                    raise GradcheckError(
                        f"For output {k} and input {i}:\n\n{failed}\n\nGot:\n{many}\n\n"
                        f"Expected for gradient {n}:\n{one}"
                    )


def _check_constant(numerical: Any, atol: float) -> None:
    """What has no history does not depend on the inputs."""
    for i, columns in enumerate(numerical):
        for k, matrix in enumerate(columns):
            if any(abs(v) > atol for column in matrix for v in column):
                raise GradcheckError(
                    f"Numerical gradient for function expected to be zero (output {k}, input {i})"
                )


def _check_dtypes(outputs: Sequence[Tensor], chosen: Sequence[Tensor]) -> None:
    for output in outputs:
        grads = tenon.autograd.grad(
            output, chosen, tenon.ones_like(output), retain_graph=True, allow_unused=True
        )
        for grad, x in zip(grads, chosen, strict=True):
            if grad is not None and grad.dtype != x.dtype:
                raise GradcheckError("grad does not have the dtype of its input")


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
    """Whether backward of func agrees with finite differences for the inputs (float64 is best).

    With masked=True sparse inputs are moved at the elements that they hold.
    """
    if not check_backward_ad and not check_forward_ad:
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_forward_grad:
        raise NotImplementedError("gradcheck: batched tangents are not there yet")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if any(map(_is_sparse, inputs)):
        if not masked:
            raise NotImplementedError("gradcheck: sparse inputs are checked with masked=True alone")
        func, inputs = _by_values(func, inputs)
    try:
        chosen = _checked_inputs(inputs)
        for x in chosen:
            x.retain_grad()
        # Recording stays on: func may itself ask for gradients.
        numerical = [_numerical(func, inputs, x, eps) for x in chosen]

        def check_forward() -> None:
            if check_forward_ad:
                _check_forward(func, inputs, chosen, numerical, rtol, atol)

        if not check_backward_ad:
            check_forward()
            return True
        every = _outputs(func, inputs)
        recorded = [(k, o) for k, o in enumerate(every) if o.requires_grad]
        outputs = [o for _, o in recorded]
        if not recorded:
            _check_constant(numerical, atol)
            check_forward()
            return True
        for k, output in recorded:
            for i, rows in enumerate(_analytical(output, chosen)):
                if rows and numerical[i]:
                    _compare(rows, numerical[i][k], rtol, atol, (k, i))
        check_forward()
        _check_repeatable(outputs, chosen, nondet_tol)
        _check_zeros(outputs, chosen)
        if check_batched_grad:
            _check_batched(outputs, chosen)
        if check_undefined_grad:
            _check_undefined(outputs, chosen)
        if check_grad_dtypes:
            _check_dtypes(outputs, chosen)
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
    """gradcheck of the gradients of func with respect to its inputs, of their backward pass, and
    with check_fwd_over_rev=True of their tangents."""
    if not check_fwd_over_rev and not check_rev_over_rev:
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if any(map(_is_sparse, inputs)):
        if not masked:
            raise NotImplementedError(
                "gradgradcheck: sparse inputs are checked with masked=True alone"
            )
        func, inputs = _by_values(func, inputs)
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
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )
