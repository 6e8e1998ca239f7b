"""tenon.nested: batches of tensors whose sizes differ.

A nested tensor is a list of tensors, its components, that is computed with as one: elementwise
functions, products, softmax and attention work on each. Its dimension 0 is the list; others count
behind it. `layout` is tenon.strided, or tenon.jagged where one dimension alone differs: then
`values()` has all components one after the other, and `offsets()` where they begin; of a strided
one it has all elements. It shares their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.nested._tensor import NestedTensor, of_components, packed, to_padded_tensor

__all__ = [
    "NestedTensor", "as_nested_tensor", "masked_select", "narrow", "nested_tensor",
    "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A nested tensor of copies of tensors, or of what makes tensors, of equally many dimensions.

    >>> nested.nested_tensor([tn.ones(2, 3), tn.ones(4, 3)]).size(2)
    3
    """
    parts = []
    for item in tensor_list:
        made = item.detach().clone() if isinstance(item, Tensor) else tenon.tensor(item)
        made = made.to(device=device or made.device, dtype=dtype or made.dtype)
        parts.append(made.pin_memory() if pin_memory else made)
    return packed(parts, layout).requires_grad_(requires_grad)


def as_nested_tensor(
    ts: Tensor | Sequence[Tensor], dtype: Any = None, device: Any = None, layout: Any = None
) -> NestedTensor:
    """A nested tensor of copies of these tensors with their history, or of a tensor's rows.

    >>> nested.as_nested_tensor([tn.ones(1), tn.ones(2)]).unbind()[1].tolist()
    [1.0, 1.0]
    """
    if isinstance(ts, NestedTensor):
        return of_components(ts._parts, layout or ts._layout)
    if not isinstance(ts, Tensor | list | tuple):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / "
                        f"tuple of tensors, not {type(ts).__name__}")  # fmt: skip
    parts = list(ts.unbind(0)) if isinstance(ts, Tensor) else list(ts)
    if not all(isinstance(p, Tensor) for p in parts):
        raise TypeError("as_nested_tensor(): Expected every element of the list to be a tensor")
    parts = [p.to(device=device or p.device, dtype=dtype or p.dtype) for p in parts]
    return (of_components if isinstance(ts, Tensor) else packed)(parts, layout)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """A nested tensor of views: components lie one after the other in `values`, along dimension
    jagged_dim - 1 (the first one), and begin at `offsets`, or are as long as `lengths` says.

    >>> nested.nested_tensor_from_jagged(tn.arange(3), offsets=tn.tensor([0, 1, 3])).unbind()
    (tensor([0]), tensor([1, 2]))
    """
    dim = 1 if jagged_dim is None else jagged_dim
    if offsets is None and lengths is None:
        raise RuntimeError(
            "nested_tensor_from_jagged(): At least one of offsets or lengths is required."
        )
    if offsets is None:
        sizes = lengths.tolist()
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
    else:
        bounds = offsets.tolist()
        starts = bounds[:-1]
        sizes = [b - a for a, b in zip(bounds, bounds[1:], strict=False)]
        sizes = sizes if lengths is None else lengths.tolist()
    parts = [values.narrow(dim - 1, s, n) for s, n in zip(starts, sizes, strict=True)]
    made = of_components(parts, tenon.jagged)
    made._whole, made._at = values, dim - 1
    if offsets is not None and lengths is not None:
        made._holes = offsets, lengths
    return made


def narrow(
    tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Any = None
) -> NestedTensor:
    """A nested tensor of parts of a tensor's rows: of row i, `length[i]` places from `start[i]`.

    >>> nested.narrow(tn.arange(6).view(2, 3), 1, 0, tn.tensor([1, 2]), tn.jagged).unbind()
    (tensor([0]), tensor([3, 4]))
    """
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    count = tensor.shape[0]
    starts, sizes = (v.tolist() if isinstance(v, Tensor) else [v] * count for v in (start, length))
    if any(s < 0 or n < 0 or s + n > tensor.shape[1] for s, n in zip(starts, sizes, strict=True)):
        raise RuntimeError(
            f"nested.narrow(): start {starts} and length {sizes} are not all within the "
            f"{tensor.shape[1]} places of a row"
        )
    if layout is tenon.jagged:
        begins = [tensor.shape[1] * i + s for i, s in enumerate(starts)]
        bounds = tenon.tensor([*begins, begins[-1] + sizes[-1]])
        return nested_tensor_from_jagged(tensor.flatten(0, 1), bounds, tenon.tensor(sizes))
    rows = tensor.unbind(0)
    return of_components(
        [r.narrow(0, s, n) for r, s, n in zip(rows, starts, sizes, strict=True)], layout
    )


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """A jagged tensor of the elements of each row of a matrix where the mask is True.

    >>> nested.masked_select(tn.eye(2), tn.tensor([[True, True], [False, True]])).unbind()
    (tensor([1., 0.]), tensor([1.]))
    """
    if tensor.layout is not tenon.strided:
        raise RuntimeError("nested.masked_select expects a strided tensor")
    if mask.layout is not tenon.strided:
        raise RuntimeError("nested.masked_select expects a strided mask")
    rows = zip(tensor.unbind(0), mask.expand(tensor.shape).unbind(0), strict=True)
    return of_components([row[chosen] for row, chosen in rows], tenon.jagged)
