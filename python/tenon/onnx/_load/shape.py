"""Operators of ONNX that move, join, make and pick."""

from __future__ import annotations

import math
from typing import Any

import tenon as tn
from tenon._tensor.dims import wrapped_dim
from tenon.nn import functional as F
from tenon.onnx._load.registry import Context, OnnxLoadError, dtype_of, ints, number, op


@op("Constant")
def constant(ctx: Context, value: Any = None, value_float: Any = None, value_floats: Any = None,
             value_int: Any = None, value_ints: Any = None, value_string: Any = None,
             value_strings: Any = None, sparse_value: Any = None) -> Any:  # fmt: skip
    if value is not None:
        return value
    if sparse_value is not None or value_string is not None or value_strings is not None:
        raise OnnxLoadError("onnx.load: constants are no texts and not sparse")
    floats = value_float if value_float is not None else value_floats
    if floats is not None:
        return tn.tensor(floats, dtype=tn.float32)
    return tn.tensor(value_int if value_int is not None else value_ints, dtype=tn.int64)


@op("ConstantOfShape")
def constant_of_shape(ctx: Context, shape: Any, value: Any = None) -> Any:
    value = tn.zeros(1) if value is None else value
    return tn.full(ints(shape), value.item(), dtype=value.dtype)


@op("Shape")
def shape_(ctx: Context, x: Any, start: int = 0, end: int | None = None) -> Any:
    return tn.tensor(list(x.shape)[start:end], dtype=tn.int64)


@op("Size")
def size(ctx: Context, x: Any) -> Any:
    return tn.tensor(x.numel(), dtype=tn.int64)


@op("Reshape")
def reshape(ctx: Context, x: Any, wanted: Any = None, shape: Any = None,
            allowzero: int = 0) -> Any:  # fmt: skip
    to = ints(wanted if wanted is not None else shape) or []
    if not allowzero:
        to = [x.shape[d] if n == 0 else n for d, n in enumerate(to)]
    return x.reshape(to)


@op("Flatten")
def flatten(ctx: Context, x: Any, axis: int = 1) -> Any:
    axis = x.ndim if axis == x.ndim else wrapped_dim(axis, x.ndim)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Squeeze")
def squeeze(ctx: Context, x: Any, given: Any = None, axes: Any = None) -> Any:
    dims = ints(given if given is not None else axes)
    return x.squeeze() if dims is None else x.squeeze(tuple(dims))


@op("Unsqueeze")
def unsqueeze(ctx: Context, x: Any, given: Any = None, axes: Any = None) -> Any:
    dims = ints(given if given is not None else axes) or []
    rank = x.ndim + len(dims)
    for d in sorted(wrapped_dim(d, rank) for d in dims):
        x = x.unsqueeze(d)
    return x


@op("Transpose")
def transpose(ctx: Context, x: Any, perm: Any = None) -> Any:
    return x.permute(perm if perm is not None else list(range(x.ndim))[::-1])


@op("Expand")
def expand(ctx: Context, x: Any, to: Any) -> Any:
    return x.expand(tn.broadcast_shapes(tuple(x.shape), tuple(ints(to) or ())))


@op("Tile")
def tile(ctx: Context, x: Any, repeats: Any) -> Any:
    return x.repeat(ints(repeats)) if x.ndim else x


@op("Concat")
def concat(ctx: Context, *inputs: Any, axis: int = 1) -> Any:
    return tn.cat(inputs, axis)


@op("Split")
def split(ctx: Context, x: Any, given: Any = None, axis: int = 0, split: Any = None,
          num_outputs: int | None = None) -> Any:  # fmt: skip
    sizes = ints(given if given is not None else split)
    if sizes is None:
        count = num_outputs or ctx.outputs
        each = -(-x.shape[axis] // count)
        sizes = [each] * (count - 1)
        sizes.append(x.shape[axis] - each * (count - 1))
    return tuple(tn.split(x, sizes, axis))


@op("Slice")
def slice_(ctx: Context, x: Any, first: Any = None, last: Any = None, dims: Any = None,
           by: Any = None, starts: Any = None, ends: Any = None,
           axes: Any = None) -> Any:  # fmt: skip
    begin = ints(first if first is not None else starts) or []
    end = ints(last if last is not None else ends) or []
    along = ints(dims if dims is not None else axes) or list(range(len(begin)))
    steps = ints(by) or [1] * len(begin)
    for a, b, d, s in zip(begin, end, along, steps, strict=True):
        n = x.shape[d]
        if s > 0:
            at = range(*slice(a, b, s).indices(n))
            x = x.narrow(d, 0, 0) if not at else tn.narrow(x, d, at[0], at[-1] - at[0] + 1)
            if s > 1:
                x = x.index_select(d, tn.arange(0, x.shape[d], s))
        else:
            end_ = None if b < -n else b
            at = range(*slice(a, end_, s).indices(n))
            x = x.index_select(d, tn.tensor(list(at), dtype=tn.int64))
    return x


def _wrapped(at: Any, n: int) -> Any:
    at = at.long()
    return tn.where(at < 0, at + n, at)


@op("Gather")
def gather(ctx: Context, x: Any, at: Any, axis: int = 0) -> Any:
    axis = wrapped_dim(axis, x.ndim)
    at = _wrapped(at, x.shape[axis])
    picked = x.index_select(axis, at.reshape(-1))
    return picked.reshape([*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]])


@op("GatherElements")
def gather_elements(ctx: Context, x: Any, at: Any, axis: int = 0) -> Any:
    return tn.gather(x, axis, _wrapped(at, x.shape[axis]))


def _rows(x: Any, at: Any, batch: int = 0) -> tuple[Any, Any]:
    """x with the dimensions that `at` names as one, and the numbers of its rows there."""
    n = at.shape[-1]
    sizes = x.shape[batch : batch + n]
    flat = tn.zeros(at.shape[:-1], dtype=tn.int64)
    for k, size in enumerate(sizes):
        flat = flat * size + _wrapped(at[..., k], size)
    return x.reshape(*x.shape[:batch], math.prod(sizes), *x.shape[batch + n :]), flat


@op("GatherND")
def gather_nd(ctx: Context, x: Any, at: Any, batch_dims: int = 0) -> Any:
    lead = at.shape[:batch_dims]
    count = math.prod(lead)
    rows, flat = _rows(x, at, batch_dims)
    rest = rows.shape[batch_dims + 1 :]
    rows = rows.reshape([count, -1, *rest])
    flat = flat.reshape(count, -1)
    picked = tn.stack([r.index_select(0, f) for r, f in zip(rows, flat, strict=True)])
    return picked.reshape([*at.shape[:-1], *rest])


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def scatter_elements(ctx: Context, x: Any, at: Any, updates: Any, axis: int = 0,
                     reduction: str = "none") -> Any:  # fmt: skip
    at = _wrapped(at, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, at, updates)
    return x.scatter_reduce(axis, at, updates, _REDUCE[reduction], include_self=True)


@op("ScatterND")
def scatter_nd(ctx: Context, x: Any, at: Any, updates: Any, reduction: str = "none") -> Any:
    rows, flat = _rows(x, at)
    flat = flat.reshape(-1)
    updates = updates.reshape([flat.numel(), *rows.shape[1:]])
    if reduction == "none":
        return rows.index_copy(0, flat, updates).reshape(x.shape)
    index = flat.reshape(-1, *[1] * (rows.ndim - 1)).expand(updates.shape)
    return rows.scatter_reduce(0, index, updates, _REDUCE[reduction]).reshape(x.shape)


@op("TensorScatter")
def tensor_scatter(ctx: Context, cache: Any, update: Any, at: Any = None, axis: int = -2,
                   mode: str = "linear") -> Any:  # fmt: skip
    axis, n = wrapped_dim(axis, cache.ndim), update.shape[axis]
    first = at if at is not None else tn.zeros(cache.shape[0], dtype=tn.int64)
    rows = []
    for row, new, begin in zip(cache, update, first.tolist(), strict=True):
        index = tn.arange(n) + begin
        index = index % cache.shape[axis] if mode == "circular" else index
        rows.append(row.index_copy(axis - 1, index, new))
    return tn.stack(rows)


@op("Pad")
def pad(ctx: Context, x: Any, given: Any = None, value: Any = None, axes: Any = None,
        mode: str = "constant", pads: Any = None, paddings: Any = None) -> Any:  # fmt: skip
    amounts = ints(given if given is not None else pads if pads is not None else paddings) or []
    dims = [wrapped_dim(d, x.ndim) for d in ints(axes)] if axes is not None else list(range(x.ndim))
    fill = number(value, 0)
    before, after = amounts[: len(dims)], amounts[len(dims) :]
    for d, a, b in zip(dims, before, after, strict=True):
        x = _pad_one(x, d, a, b, mode, fill)
    return x


def _pad_one(x: Any, d: int, before: int, after: int, mode: str, fill: Any) -> Any:
    n = x.shape[d]
    if before < 0 or after < 0:
        x = x.narrow(d, max(-before, 0), n + min(before, 0) + min(after, 0))
        return _pad_one(x, d, max(before, 0), max(after, 0), mode, fill)
    if not before and not after:
        return x
    if mode == "constant":
        wide = [(k, m) for k, m in ((before, 0), (after, 1)) if k]
        for k, last in wide:
            shape = [k if i == d else s for i, s in enumerate(x.shape)]
            block = tn.full(shape, fill, dtype=x.dtype)
            x = tn.cat([x, block] if last else [block, x], d)
        return x
    at = tn.arange(-before, n + after)
    if mode == "edge":
        at = at.clamp(0, n - 1)
    elif mode == "wrap":
        at = at % n
    else:
        period = max(2 * (n - 1), 1)
        at = at.abs() % period
        at = tn.where(at >= n, period - at, at)
    return x.index_select(d, at)


@op("Trilu")
def trilu(ctx: Context, x: Any, k: Any = None, upper: int = 1) -> Any:
    return (tn.triu if upper else tn.tril)(x, number(k, 0))


@op("EyeLike")
def eye_like(ctx: Context, x: Any, k: int = 0, dtype: int | None = None) -> Any:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    rows, columns = tn.arange(x.shape[0]).reshape(-1, 1), tn.arange(x.shape[1])
    return (columns - rows == k).to(kind)


@op("Range")
def range_(ctx: Context, start: Any, limit: Any, delta: Any) -> Any:
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return (start + tn.arange(count, dtype=start.dtype) * delta).to(start.dtype)


@op("OneHot")
def one_hot(ctx: Context, at: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    n = int(number(depth))
    rank = at.ndim + 1
    at = _wrapped(at, n)
    axis = wrapped_dim(axis, rank)
    shape = [n if d == axis else 1 for d in range(rank)]
    hot = at.unsqueeze(axis) == tn.arange(n).reshape(shape)
    return tn.where(hot, values[1], values[0])


@op("NonZero")
def non_zero(ctx: Context, x: Any) -> Any:
    return tn.nonzero(x).t().contiguous()


@op("Compress")
def compress(ctx: Context, x: Any, condition: Any, axis: int | None = None) -> Any:
    x = x.reshape(-1) if axis is None else x
    return x.index_select(axis or 0, tn.nonzero(condition).reshape(-1))


@op("Unique")
def unique(ctx: Context, x: Any, axis: int | None = None, sorted: int = 1) -> Any:
    flat = x.reshape(-1) if axis is None else x
    dim = 0 if axis is None else wrapped_dim(axis, x.ndim)
    kept, inverse, counts = tn.unique(flat, return_inverse=True, return_counts=True,
                                      dim=None if axis is None else dim)  # fmt: skip
    inverse = inverse.reshape(-1)
    n = counts.numel()
    place = tn.arange(inverse.numel())
    first = tn.full((n,), inverse.numel()).scatter_reduce(0, inverse, place, "amin")
    if not sorted:
        order = tn.argsort(first)
        rank = tn.empty_like(order).index_copy(0, order, tn.arange(n))
        kept, inverse = kept.index_select(dim, order), rank[inverse]
        first, counts = first[order], counts[order]
    return kept, first, inverse, counts


@op("ReverseSequence")
def reverse_sequence(ctx: Context, x: Any, lengths: Any, batch_axis: int = 1,
                     time_axis: int = 0) -> Any:  # fmt: skip
    rows = []
    for row, n in zip(x.unbind(batch_axis), lengths.tolist(), strict=True):
        d = time_axis - (time_axis > batch_axis)
        rest = row.narrow(d, n, row.shape[d] - n)
        rows.append(tn.cat([row.narrow(d, 0, n).flip(d), rest], d))
    return tn.stack(rows, batch_axis)


@op("DepthToSpace")
def depth_to_space(ctx: Context, x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        x = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(ctx: Context, x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    x = x.reshape(n, c, h // b, b, w // b, b).permute(order)
    return x.reshape(n, c * b * b, h // b, w // b)


@op("CenterCropPad")
def center_crop_pad(ctx: Context, x: Any, to: Any, axes: Any = None) -> Any:
    for d, n in zip(axes or range(x.ndim), ints(to) or [], strict=True):
        d, have = wrapped_dim(d, x.ndim), x.shape[d]
        if have > n:
            x = x.narrow(d, (have - n) // 2, n)
        else:
            x = _pad_one(x, d, (n - have) // 2, n - have - (n - have) // 2, "constant", 0)
    return x


@op("Col2Im")
def col2im(ctx: Context, x: Any, image: Any, block: Any, dilations: Any = None, pads: Any = None,
           strides: Any = None) -> Any:  # fmt: skip
    size, kernel = ints(image) or [], ints(block) or []
    rank = len(size)
    if rank != 2:
        raise OnnxLoadError(f"onnx.load: Col2Im of {rank} dimensions is not read")
    pads = pads or [0] * 4
    wide = [s + pads[i] + pads[i + 2] for i, s in enumerate(size)]
    y = F.fold(x, wide, kernel, dilation=dilations or 1, stride=strides or 1)
    return y[:, :, pads[0] : pads[0] + size[0], pads[1] : pads[1] + size[1]]


# ---- Random numbers, from the generator of Tenon -------------------------------------------------


@op("RandomNormal")
def random_normal(ctx: Context, shape: Any, mean: float = 0.0, scale: float = 1.0, dtype: int = 1,
                  seed: Any = None) -> Any:  # fmt: skip
    return tn.randn(shape, dtype=dtype_of(dtype)) * scale + mean


@op("RandomUniform")
def random_uniform(ctx: Context, shape: Any, low: float = 0.0, high: float = 1.0, dtype: int = 1,
                   seed: Any = None) -> Any:  # fmt: skip
    return tn.rand(shape, dtype=dtype_of(dtype)) * (high - low) + low


@op("RandomNormalLike")
def random_normal_like(ctx: Context, x: Any, dtype: int | None = None, **more: Any) -> Any:
    made = random_normal(ctx, tuple(x.shape), **more)
    return made.to(x.dtype if dtype is None else dtype_of(dtype))


@op("RandomUniformLike")
def random_uniform_like(ctx: Context, x: Any, dtype: int | None = None, **more: Any) -> Any:
    made = random_uniform(ctx, tuple(x.shape), **more)
    return made.to(x.dtype if dtype is None else dtype_of(dtype))


@op("Bernoulli")
def bernoulli(ctx: Context, x: Any, dtype: int | None = None, seed: Any = None) -> Any:
    return tn.bernoulli(x).to(x.dtype if dtype is None else dtype_of(dtype))


@op("Multinomial")
def multinomial(ctx: Context, x: Any, sample_size: int = 1, dtype: int = 6,
                seed: Any = None) -> Any:  # fmt: skip
    return tn.multinomial(tn.softmax(x, -1), sample_size, replacement=True).to(dtype_of(dtype))
