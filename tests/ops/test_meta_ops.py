"""Every operator of the table on the meta device: for every sample the shapes, strides and dtypes
that the CPU's call has, and those of its gradients, or the error of an operator whose results
depend on values.

Adding an operator adds its tests: nothing here names one but the list of those that need values.
"""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from table import call, make_case, rows, tensor_args

# What they return depends on the values of their arguments.
NEED_VALUES = {
    "argwhere", "bincount", "linspace_tensors", "logspace_tensors", "equal", "is_nonzero",
    "masked_select", "narrow_tensor", "nonzero", "repeat_interleave_counts",
    "repeat_interleave_tensor", "unique", "unique_consecutive", "_unique",
    "_unique_consecutive", "_nonzero_tuple", "where_condition",
}  # fmt: skip
HOST = {"batch_sizes"}  # arguments that stay in the memory of the CPU


def on_meta(value: Any) -> Any:
    if isinstance(value, tn.Tensor):
        copy = tn.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, list):
        return [on_meta(v) for v in value]
    return value


def facts(result: Any) -> Any:
    """Shape, strides and dtype of every tensor of a result."""
    if isinstance(result, tn.Tensor):
        return tuple(result.shape), result.stride(), result.dtype
    if isinstance(result, (tuple, list)):
        return [facts(r) for r in result]
    return result


def tensors_of(result: Any) -> list[tn.Tensor]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [r for r in parts if isinstance(r, tn.Tensor)]


def call_of(row: dict[str, Any], sample: dict[str, Any], dtype: str) -> tuple[Any, Any]:
    """The sample's arguments, and the same on meta: without tensors, by `device`."""
    types = {a["name"]: a["type"] for a in row["args"]}
    here = tensor_args(make_case(row, sample, dtype))
    for name, value in here.items():
        if types[name].startswith("DType") and isinstance(value, str):
            here[name] = getattr(tn, value)
    there = {name: value if name in HOST else on_meta(value) for name, value in here.items()}
    if "device" in types and not any(tensors_of(v) for v in here.values()):
        there["device"] = "meta"
    return here, there


# The sample of `index` is a list in which None stands for a dimension.
sampled = pytest.mark.parametrize(
    "row",
    [r for r in rows() if r["samples"] and r["name"] != "index"],
    ids=lambda row: row["name"],
)


@sampled
def test_same_geometry(row: dict[str, Any]) -> None:
    compared = 0
    for dtype in row["dtypes"]:
        for sample in row["samples"]:
            here, there = call_of(row, sample, dtype)
            try:
                want = call(row, here)
            except (RuntimeError, NotImplementedError, ValueError):
                continue  # not for this dtype
            compared += 1
            if row["name"] in NEED_VALUES:
                with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
                    call(row, there)
                continue
            got = call(row, there)
            assert facts(got) == facts(want), (sample, dtype)
            if "device" in there or any(tensors_of(v) for v in there.values()):
                assert all(t.is_meta for t in tensors_of(got)), (sample, dtype)
    assert compared


@pytest.mark.parametrize(
    "row",
    [
        r for r in rows()
        if r["samples"] and r["where"] and r["differentiable"] and not r["inplace_only"]
        and "float32" in r["dtypes"] and r["name"] not in NEED_VALUES
    ],
    ids=lambda row: row["name"],
)  # fmt: skip
def test_same_gradients(row: dict[str, Any]) -> None:
    written = {a["name"] for a in row["args"] if "!" in a["type"]}
    for sample in row["samples"]:
        here, there = call_of(row, sample, "float32")
        grads = []
        for args in (here, there):
            leaves = [t for n, v in args.items() if n not in written for t in tensors_of(v)]
            leaves = [t.requires_grad_() for t in leaves if t.is_floating_point()]
            results = [r for r in tensors_of(call(row, args)) if r.requires_grad]
            if results and leaves:
                seeds = [tn.ones_like(r) for r in results]
                try:
                    grads.append(tn.autograd.grad(results, leaves, seeds, allow_unused=True))
                except RuntimeError as error:  # the entry says so
                    assert "derivative" in str(error)
        if grads:
            assert facts(grads[1]) == facts(grads[0]), sample


def test_norms_say_the_shape_of_what_they_keep() -> None:
    """The reciprocal root mean square of each row, which the CPU computes by parts."""
    for dtype, kept in ((tn.float32, tn.float32), (tn.float16, tn.float32)):
        x = tn.empty(3, 4, 5, dtype=dtype, device="meta")
        y, rstd = tn._C._ops._rms_norm(x, [4, 5], None, 1e-5)
        assert (y.shape, y.dtype, rstd.shape, rstd.dtype) == (x.shape, dtype, (3, 1, 1), kept)


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("cells", [False, True])
def test_layers_that_a_device_runs_at_once_say_their_shapes(ways: int, cells: bool) -> None:
    """Recurrent layers in one call, for which the CPU has no kernel, and their gradients."""
    ops, sizes = tn._C._ops, [3, 2, 2]
    x, h0, c0 = (tn.empty(s, device="meta", dtype=tn.float64, requires_grad=True)
                 for s in ((7, 5), (2 * ways, 3, 4), (2 * ways, 3, 4)))  # fmt: skip
    shapes = [(16, 5), (16, 4), (16,), (16,)]
    params = [tn.empty(s, device="meta", dtype=tn.float64, requires_grad=s != (16, 4))
              for s in shapes]  # fmt: skip
    mode = (2, True, 1, ways == 2)
    y, h, c, room = ops._rnn_layers(x, h0, c0 if cells else None, params, sizes, *mode, 17)
    assert [facts(t)[::2] for t in (y, h, room)] == [
        ((7, 4 * ways), x.dtype), (h0.shape, x.dtype), ((17,), tn.uint8)]  # fmt: skip
    assert facts(c)[::2] == (c0.shape if cells else (0,), x.dtype)
    given = [x, h0, *([c0] if cells else []), params[0], *params[2:]]
    for ends in ([y, h], [h], [y]):
        got = tn.autograd.grad(ends, given, [tn.ones_like(t) for t in ends], retain_graph=True)
        assert facts(got) == facts(given)
    (slope,) = tn.autograd.grad(y, x, tn.ones_like(y), create_graph=True, retain_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives of a recurrent network"):
        tn.autograd.grad(slope, h0, tn.ones_like(slope))
    back = (y, None, None, x, h0, c0 if cells else None, params, [y, room], sizes, *mode)
    with tn.no_grad():
        *_, c, weights = ops._rnn_layers_backward(*back)
    assert (c is None) == (not cells)
    assert facts(weights)[::2] == ((16 * (5 + 4 + 1 + 1),), x.dtype)
    for input, state, steps in ((x[:6], h0, sizes), (x, h0[0], sizes), (x[None], h0, sizes),
                                (x[:0], h0, []), (x, h0, [2**62] * 4)):  # fmt: skip
        with pytest.raises(RuntimeError, match="'input' must have a row for each step"):
            ops._rnn_layers(input, state, None, params, steps, *mode, 17)
    for where in (tn.empty(2, dtype=tn.int64), tn.empty((), dtype=tn.int32)):
        with pytest.raises((RuntimeError, TypeError), match="argument 'room' must"):
            ops._rnn_room(x.detach(), where.to("meta"), sizes, *mode, 4, 0, True)


def test_a_cast_by_itself_is_of_its_own_dtype() -> None:
    """_cast gets the dtype of its result from its caller; alone it has that of its input."""
    for dtype in (tn.int32, tn.float64, tn.bool, tn.complex64):
        for x in (tn.ones(2, 3, dtype=dtype), tn.empty(2, 3, dtype=dtype, device="meta")):
            assert facts(tn._C._ops._cast(x)) == facts(x)
