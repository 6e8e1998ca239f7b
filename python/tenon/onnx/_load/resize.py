"""Resize and Upsample of ONNX: one dimension after the other, by a matrix of weights."""

from __future__ import annotations

import math
from typing import Any

import tenon as tn
from tenon._tensor.dims import wrapped_dim
from tenon.onnx._load.registry import Context, OnnxLoadError, op

_MOST = 1 << 24  # elements of a dimension: positions are worked out one by one


def _places(
    n_in: int, n_out: int, scale: float, mode: str, roi: tuple[float, float]
) -> list[float]:
    """Where in the input the elements of the output lie."""
    wanted = scale * n_in
    found = []
    for i in range(n_out):
        if mode == "align_corners":
            at = i * (n_in - 1) / (wanted - 1) if wanted != 1 else 0.0
        elif mode == "asymmetric":
            at = i / scale
        elif mode == "tf_crop_and_resize":
            first, last = roi
            if n_out > 1:
                at = first * (n_in - 1) + i * (last - first) * (n_in - 1) / (wanted - 1)
            else:
                at = (first + last) * (n_in - 1) / 2
        elif mode == "pytorch_half_pixel" and wanted <= 1:
            at = -0.5
        elif mode == "half_pixel_symmetric":
            adjusted = n_out / wanted
            at = n_in / 2 * (1 - adjusted) + (i + 0.5) / scale - 0.5
        else:
            at = (i + 0.5) / scale - 0.5
        found.append(at)
    return found


def _cubic(x: float, a: float) -> float:
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def _nearest(at: float, mode: str) -> int:
    if mode == "floor":
        return math.floor(at)
    if mode == "ceil":
        return math.ceil(at)
    if mode == "round_prefer_ceil":
        return math.floor(at + 0.5)
    return math.ceil(at - 0.5)


def _row(at: float, n: int, scale: float, mode: str, a: float, antialias: int, outside: int) -> Any:
    """Weights of the input's elements for one of the output."""
    reach = 1.0 if mode == "linear" else 2.0
    stretch = min(scale, 1.0) if antialias else 1.0
    base = math.floor(at)
    wide = math.ceil(reach / stretch)
    row = [0.0] * n
    for k in range(base - wide, base + wide + 2):
        far = (at - k) * stretch
        weight = max(1 - abs(far), 0.0) if mode == "linear" else _cubic(far, a)
        if outside and not 0 <= k < n:
            continue
        row[min(max(k, 0), n - 1)] += weight
    total = sum(row)
    return [w / total for w in row] if total and (outside or antialias) else row


@op("Resize", "Upsample")
def resize(ctx: Context, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None,
           antialias: int = 0, axes: Any = None,
           coordinate_transformation_mode: str | None = None, cubic_coeff_a: float = -0.75,
           exclude_outside: int = 0, extrapolation_value: float = 0.0,
           keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
           nearest_mode: str | None = None, **old: Any) -> Any:  # fmt: skip
    if scales is None and sizes is None and (roi is not None or old):
        scales, roi = (roi if roi is not None else tn.tensor(old["scales"])), None
    early = ctx.opset < 11
    transform = coordinate_transformation_mode or ("asymmetric" if early else "half_pixel")
    rounding = nearest_mode or ("floor" if early else "round_prefer_floor")
    dims = [wrapped_dim(d, x.ndim) for d in axes] if axes else list(range(x.ndim))
    if (scales is None or not scales.numel()) and sizes is None:
        raise OnnxLoadError("Resize has neither scales nor sizes")
    by, to = _scales(x, dims, scales, sizes, keep_aspect_ratio_policy)
    if not all(0 <= n <= _MOST for n in to):
        raise OnnxLoadError(f"Resize would make sizes of {to}, of 0 to {_MOST} that are possible")
    crop = (
        roi.tolist() if roi is not None and roi.numel() else [0.0] * len(dims) + [1.0] * len(dims)
    )
    for k, d in enumerate(dims):
        n = x.shape[d]
        ends = (crop[k], crop[k + len(dims)])
        if to[k] == n and by[k] == 1 and transform != "tf_crop_and_resize":
            continue
        places = _places(n, to[k], by[k], transform, ends)
        if mode == "nearest":
            index = [min(max(_nearest(p, rounding), 0), n - 1) for p in places]
            x = x.index_select(d, tn.tensor(index, dtype=tn.int64))
        else:
            rows = [_row(p, n, by[k], "linear" if "linear" in mode else mode, cubic_coeff_a,
                         antialias, exclude_outside) for p in places]  # fmt: skip
            matrix = tn.tensor(rows, dtype=tn.float64).to(x.dtype)
            x = tn.tensordot(x, matrix, dims=([d], [1])).movedim(-1, d)
        if transform == "tf_crop_and_resize":
            out = tn.tensor([not 0 <= p <= n - 1 for p in places])
            shape = [-1 if i == d else 1 for i in range(x.ndim)]
            x = tn.where(out.reshape(shape), tn.tensor(extrapolation_value, dtype=x.dtype), x)
    return x


def _scales(
    x: Any, dims: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    have = [x.shape[d] for d in dims]
    if scales is not None and scales.numel():
        by = scales.tolist()
        if not all(math.isfinite(s) and s > 0 for s in by):
            raise OnnxLoadError(f"Resize has the scales {by}")
        return by, [math.floor(n * s) for n, s in zip(have, by, strict=True)]
    to = sizes.tolist()
    by = [t / n for t, n in zip(to, have, strict=True)]
    if policy != "stretch":
        same = min(by) if policy == "not_larger" else max(by)
        by = [same] * len(by)
        to = [math.floor(same * n + 0.5) for n in have]
    return by, to
