"""Functions that PyTorch has for its own use, which programs, its compilers' graphs above all, call
by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import _C
from tenon._C import Tensor

_ops = _C._ops


def _given(results: Sequence[Tensor], out: Any) -> tuple[Tensor, ...]:
    if out is None:
        return tuple(results)
    if len(out) != len(results):
        raise RuntimeError(f"{len(results)} results do not go into {len(out)} tensors of out=")
    return tuple(_ops._given(r, out=o) for r, o in zip(results, out, strict=True))


def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...] | None:
    """Copies of the slices along dim; with out= they go into its tensors, and nothing is returned.

    Shapes: any, to slices without dim.

    >>> tn.unbind_copy(tn.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    made = _given(_ops.unbind_copy(input, dim), out)
    return made if out is None else None


def split_copy(
    input: Tensor, split_size: int, dim: int = 0, *, out: Any = None
) -> tuple[Tensor, ...] | None:
    """Copies of parts of this size along dim; with out= they go into its tensors, and nothing is
    returned.

    Shapes: any, to parts.

    >>> tn.split_copy(tn.arange(3), 2)
    (tensor([0, 1]), tensor([2]))
    """
    made = _given(_ops.split_copy(input, split_size, dim), out)
    return made if out is None else None


def split_with_sizes_copy(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Any = None
) -> tuple[Tensor, ...] | None:
    """Copies of parts of these sizes along dim; with out= they go into its tensors, and nothing is
    returned.

    Shapes: any, to parts.

    >>> tn.split_with_sizes_copy(tn.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    made = _given(_ops.split_with_sizes_copy(input, split_sizes, dim), out)
    return made if out is None else None


def _check_chunks(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> int:
    """dim, counted from the front."""

    def check(right: bool, what: str) -> None:
        if not right:
            raise RuntimeError(f"_chunk_cat expects {what}")

    check(num_chunks >= 1, "positive num_chunks")
    check(len(tensors) > 0, "a non-empty input tensor list")
    first = tensors[0]
    if all(t.ndim == first.ndim for t in tensors):
        if not -first.ndim <= dim < first.ndim:
            raise IndexError(f"_chunk_cat: dimension {dim} of tensors of {first.ndim}")
        dim %= first.ndim
    check(dim >= 0, "non-negative dim when input tensors have different ndims")
    for t in tensors:
        check(t.numel() > 0, "non-empty tensor")
        check(dim < t.ndim, "dim < ndim for all input tensors")
        check(t.shape[:dim] == first.shape[:dim], "same sizes of 0,...,dim-1 dimensions for all "
              "tensors")  # fmt: skip
    return dim


def _chunk_cat(
    tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None
) -> Tensor:
    """Each tensor in num_chunks parts along dim, filled up with zeros; parts lie side by side.

    Shapes: (A, B, *) with dim 1 to (A, num_chunks, the sum of the parts' sizes).

    >>> tn._chunk_cat([tn.tensor([1, 2, 3]), tn.tensor([4])], 0, 2)
    tensor([[1, 2, 4],
            [3, 0, 0]])
    """
    dim = _check_chunks(tensors, dim, num_chunks)
    parts = []
    for t in tensors:
        lacking = -t.shape[dim] % num_chunks
        if lacking:
            shape = (*t.shape[:dim], lacking, *t.shape[dim + 1 :])
            t = _ops.cat([t, t.new_zeros(shape)], dim)
        parts.append(t.reshape(*t.shape[:dim], num_chunks, -1))
    return _ops.cat(parts, dim + 1, out=out) if out is not None else _ops.cat(parts, dim + 1)


def _inside(input: Tensor, indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Indices that name an element, whatever they were: a mask leaves out those that did not."""
    return tuple(
        slice(None) if i is None else i.clamp(-n, n - 1)
        for i, n in zip(indices, input.shape, strict=False)
    )


def _unsafe_masked_index(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any
) -> Tensor:
    """input[indices] where mask is true, fill elsewhere, where indices may be anything.

    Shapes: indices that broadcast to mask's shape.

    >>> i = tn.tensor([0, 9])
    >>> tn._unsafe_masked_index(tn.tensor([5, 6]), i < 2, [i], -1)
    tensor([ 5, -1])
    """
    if input.numel() == 0:
        shape = _ops.broadcast_tensors([mask, *(i for i in indices if i is not None)])[0].shape
        return input.new_full(shape, fill)
    return input[_inside(input, indices)].masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """input with values added at indices, where mask is true.

    Shapes: indices that broadcast to values' shape.

    >>> i = tn.tensor([0, 9])
    >>> tn._unsafe_masked_index_put_accumulate(tn.tensor([5, 6]), i < 2, [i], tn.tensor([1, 1]))
    tensor([6, 6])
    """
    if input.numel() == 0:
        return input.clone()
    places = _inside(input, indices)
    return input.index_put(places, values.masked_fill(~mask, 0), accumulate=True)


def _native_batch_norm_legit(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *rest: Any,
    out: Any = None,
    **named: Any,
) -> tuple[Tensor, ...]:
    """native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps),
    also without the two statistics. Outside of training there are none to be kept for the gradient.

    Shapes: (N, C, *), to it, and (C,) twice, or nothing.

    >>> x = tn.tensor([[1.0], [3.0]])
    >>> tn._native_batch_norm_legit(x, None, None, True, 0.1, 0.0)[0]
    tensor([[-1.],
            [ 1.]])
    """
    names = ["running_mean", "running_var", "training", "momentum", "eps"]
    if len(rest) + len(named) == 3:
        named |= {"running_mean": None, "running_var": None}
        names = names[2:]
    named |= dict(zip(names, rest, strict=False))
    y, mean, invstd = _ops.native_batch_norm(input, weight, bias, **named)
    if not named["training"]:
        mean, invstd = mean.new_empty(0), invstd.new_empty(0)
    return _given((y, mean, invstd), out)


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """native_batch_norm in training, and the room that cuDNN would keep for the gradient: none.

    Shapes: (N, C, *), to it, (C,) twice, and nothing.

    >>> x, n = tn.tensor([[1.0], [3.0]]), tn.zeros(1)
    >>> tn._batch_norm_with_update(x, None, None, n, tn.ones(1), 0.5, 0.0)[0], n
    (tensor([[-1.],
            [ 1.]]), tensor([1.]))
    """
    made = _ops.native_batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return (*made, _ops.empty(0, dtype=_C.uint8, device=input.device))


def _upsample_bilinear2d_aa(
    input: Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scales_h: Sequence[float] | float | None = None,
    scales_w: float | None = None,
    *,
    scale_factors: Sequence[float] | None = None,
) -> Tensor:
    """nn.functional.interpolate(mode="bilinear", antialias=True). Both scales may be given in the
    place of the first, as a list.

    Shapes: (N, C, H, W) to (N, C, *output_size).

    >>> tn._upsample_bilinear2d_aa(tn.tensor([[[[1.0, 3.0]]]]), [1, 1], False)
    tensor([[[[2.]]]])
    """
    from tenon.nn import functional

    scales = scale_factors
    if isinstance(scales_h, (tuple, list)):
        scales = scales_h
    elif scales_h is not None and scales_w is not None:
        scales = [scales_h, scales_w]
    size = None if output_size is None or scales is not None else list(output_size)
    made = functional.interpolate(input, size, scales, "bilinear", align_corners, antialias=True)
    if output_size is not None and list(made.shape[-2:]) != list(output_size):
        raise RuntimeError(
            f"_upsample_bilinear2d_aa(): output_size is {list(output_size)}, but the scales make "
            f"{list(made.shape[-2:])} of the input"
        )
    return made
