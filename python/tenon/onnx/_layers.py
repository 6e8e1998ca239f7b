"""Translations of layers: linear maps, convolutions, norms, pooling, attention, recurrent nets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenon
from tenon.onnx._translate import Call, Size, translates


@translates("linear")
def linear(c: Call) -> str:
    if c.rank("input") == 2 and c["bias"] is not None and c.rank("weight") == 2:
        return c.emit("Gemm", c["input"], c["weight"], c["bias"], transB=1)
    rank = c.rank("weight")
    turned = c.emit("Transpose", c["weight"], perm=[1, 0]) if rank == 2 else c["weight"]
    made = c.emit("MatMul", c["input"], turned)
    return made if c["bias"] is None else c.emit("Add", made, c["bias"])


@translates("embedding")
def embedding(c: Call) -> str:
    return c.emit("Gather", c["weight"], c["indices"], axis=0)


@translates("dropout")
def dropout(c: Call) -> str:
    if c["train"] and c["p"] > 0:
        c.refuse("training: export a module in eval()")
    return c.emit("Identity", c["input"])


@translates("softmax", "log_softmax", "softmin")
def softmax(c: Call) -> str:
    x = c.operand("input", c.dtype)
    if c.node["op"] == "softmin":
        x = c.emit("Neg", x)
    return c.emit("LogSoftmax" if c.node["op"] == "log_softmax" else "Softmax", x, axis=c["dim"])


# ---- Convolutions and pooling --------------------------------------------------------------------


def _batched(c: Call, spatial: int) -> None:
    if c.rank("input") != spatial + 2:
        c.refuse("inputs without a batch dimension")


@translates("conv1d", "conv2d", "conv3d")
def conv(c: Call) -> str:
    _batched(c, len(c["stride"]))
    inputs = [c["input"], c["weight"]] + ([c["bias"]] if c["bias"] is not None else [])
    return c.emit("Conv", *inputs, strides=c["stride"], pads=c["padding"] * 2,
                  dilations=c["dilation"], group=c["groups"])  # fmt: skip


@translates("conv1d_padding", "conv2d_padding", "conv3d_padding")
def conv_padding(c: Call) -> str:
    _batched(c, len(c["stride"]))
    spans = [0] * len(c["stride"])
    if c["padding"] == "same":
        kernel = c.shape("weight")[2:]
        spans = [d * (k - 1) for d, k in zip(c["dilation"], kernel, strict=True)]
    pads = [s // 2 for s in spans] + [s - s // 2 for s in spans]
    inputs = [c["input"], c["weight"]] + ([c["bias"]] if c["bias"] is not None else [])
    return c.emit("Conv", *inputs, strides=c["stride"], pads=pads, dilations=c["dilation"],
                  group=c["groups"])  # fmt: skip


@translates("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(c: Call) -> str:
    _batched(c, len(c["stride"]))
    inputs = [c["input"], c["weight"]] + ([c["bias"]] if c["bias"] is not None else [])
    return c.emit("ConvTranspose", *inputs, strides=c["stride"], pads=c["padding"] * 2,
                  dilations=c["dilation"], group=c["groups"],
                  output_padding=c["output_padding"])  # fmt: skip


@translates("max_pool1d", "max_pool2d")
def max_pool(c: Call) -> str:
    size = c["kernel_size"]
    _batched(c, len(size))
    return c.emit("MaxPool", c["input"], kernel_shape=size, strides=c["stride"] or size,
                  pads=c["padding"] * 2, dilations=c["dilation"],
                  ceil_mode=int(c["ceil_mode"]))  # fmt: skip


@translates("max_pool2d_with_indices")
def max_pool_places(c: Call) -> list[str]:
    size, plane = c["kernel_size"], c.shape("input")[2:]
    _batched(c, len(size))
    if any(not isinstance(s, int) or s < 0 for s in plane):
        c.refuse("a size that is free")
    best, at = c.emit("MaxPool", c["input"], kernel_shape=size, strides=c["stride"] or size,
                      pads=c["padding"] * 2, dilations=c["dilation"],
                      ceil_mode=int(c["ceil_mode"]), outputs=2)  # fmt: skip
    return [best, c.emit("Mod", at, c.const(math.prod(plane), "int64"))]


@translates("avg_pool1d", "avg_pool2d")
def avg_pool(c: Call) -> str:
    size = c["kernel_size"]
    _batched(c, len(size))
    if c.args.get("divisor_override") is not None or c["ceil_mode"]:
        return _mean_of_windows(c, size)
    return c.emit("AveragePool", c["input"], kernel_shape=size, strides=c["stride"] or size,
                  pads=c["padding"] * 2,
                  count_include_pad=int(c["count_include_pad"]))  # fmt: skip


def _mean_of_windows(c: Call, size: list[int]) -> str:
    """Means over all of each window, zeros around, times its length over that which counts."""
    have, made = c.shape("input")[2:], c.outs[0]["shape"][2:]
    if any(not isinstance(n, int) or n < 0 for n in (*have, *made)):
        c.refuse("a size that is free, with ceil_mode or divisor_override")
    steps, edges = c["stride"] or size, c["padding"]
    override = c.args.get("divisor_override")
    ends, scale = [], np.ones([1] * len(size))
    for d, (h, m, k, s, p) in enumerate(zip(have, made, size, steps, edges, strict=True)):
        begin = np.arange(m) * s - p
        stop = np.minimum(begin + k, h + p)
        counted = stop - begin
        if not c["count_include_pad"]:
            counted = np.minimum(stop, h) - np.maximum(begin, 0)
        scale = scale * (k / counted).reshape([-1] + [1] * (len(size) - 1 - d))
        ends.append(max(0, (m - 1) * s + k - h - p))
    if override is not None:
        scale = np.full([1] * len(size), math.prod(size) / override)
    pads = c.ints([0, 0, *edges, 0, 0, *ends])
    whole = c.emit("Pad", c["input"], pads, 0)
    means = c.emit("AveragePool", whole, kernel_shape=size, strides=steps)
    return c.emit("Mul", means, c.const(scale, c.dtype))


@translates("adaptive_avg_pool1d", "adaptive_avg_pool2d")
def adaptive_avg_pool(c: Call) -> str:
    wanted = c["output_size"]
    _batched(c, len(wanted))
    return _mean_of_blocks(c, wanted)


def _mean_of_blocks(c: Call, wanted: list[int]) -> str:
    if all(w == 1 for w in wanted):
        return c.emit("GlobalAveragePool", c["input"])
    have = c.shape("input")[2:]
    if any(not isinstance(h, int) or h < 0 for h in have):
        c.refuse("a size that is free")
    if any(h % w for h, w in zip(have, wanted, strict=True)):
        return _mean_of_unequal_blocks(c, have, wanted)
    size = [h // w for h, w in zip(have, wanted, strict=True)]
    return c.emit("AveragePool", c["input"], kernel_shape=size, strides=size)


def _mean_of_unequal_blocks(c: Call, have: list[int], wanted: list[int]) -> str:
    """Sums along one dimension after the other, over the number of elements of each block."""
    made, counts = c["input"], np.ones([1] * len(have))
    for d, (h, w) in enumerate(zip(have, wanted, strict=True)):
        axis = c.ints([d + 2])
        spans = [(i * h // w, -((i + 1) * h // -w)) for i in range(w)]
        parts = [c.emit("Slice", made, c.ints([a]), c.ints([b]), axis) for a, b in spans]
        sums = [c.emit("ReduceSum", part, axis, keepdims=1) for part in parts]
        made = c.emit("Concat", *sums, axis=d + 2)
        counts = counts * np.asarray([b - a for a, b in spans]).reshape(
            [-1] + [1] * (len(have) - 1 - d)
        )
    return c.emit("Div", made, c.const(counts, c.dtype))


@translates("interpolate")
def interpolate(c: Call) -> str:
    modes = {"nearest": "nearest", "bilinear": "linear", "linear": "linear"}
    if c["mode"] == "area":
        return _mean_of_blocks(c, c.outs[0]["shape"][2:])
    if c["mode"] not in modes:
        c.refuse(f"mode {c['mode']}")
    scales = [c["scale_factor"]] * (c.rank("input") - 2)
    return _resized(c, modes[c["mode"]], c["align_corners"], c["size"], scales)


def _resized(c: Call, mode: str, align_corners: bool, given: Any, scales: list[Any]) -> str:
    """By sizes where these tell where an element comes from, else by the scales."""
    sizes, have = c.outs[0]["shape"][2:], c.shape("input")[2:]
    known = [isinstance(s, int) and s >= 0 for s in sizes]
    place = "align_corners" if align_corners else "half_pixel"
    how = {"mode": mode, "coordinate_transformation_mode": place}
    if mode == "nearest":
        how |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    told = all(s is None or (k and s * h == o)
               for s, k, h, o in zip(scales, known, have, sizes, strict=True))  # fmt: skip
    if told or (all(known) and align_corners):
        wanted = [o if k else given[i] for i, (o, k) in enumerate(zip(sizes, known, strict=True))]
        first = [Size(c.emit("Shape", c["input"], start=d, end=d + 1)) for d in (0, 1)]
        return c.emit("Resize", c["input"], "", "", c.ints([*first, *wanted]), **how)
    if all(known) and mode == "nearest":
        return _picked(c, scales)
    for scale, is_known, h, o in zip(scales, known, have, sizes, strict=True):
        narrow = np.float32(1.0 if scale is None else scale)
        right = int(narrow * np.float32(h)) == o if is_known else float(narrow) == scale
        if scale is None or not right:
            c.refuse(f"a scale of {scale}, which float32 does not hold, or none")
    return c.emit("Resize", c["input"], "", c.const([1, 1, *scales], "float32"), **how)


def _picked(c: Call, scales: list[Any]) -> str:
    """The nearest elements, one dimension after the other."""
    made = c["input"]
    for d, scale in enumerate(scales):
        places = tenon.arange(c.shape("input")[d + 2], dtype=tenon.float64)
        size = {} if scale is not None else {"size": c.outs[0]["shape"][d + 2]}
        chosen = tenon.nn.functional.interpolate(places[None, None], scale_factor=scale, **size)
        made = c.emit("Gather", made, c.const(chosen.flatten().numpy(), "int64"), axis=d + 2)
    return made


@translates("upsample_bilinear2d", "upsample_nearest2d")
def upsample(c: Call) -> str:
    linear = c.node["op"] == "upsample_bilinear2d"
    scales = [c.args.get(name) for name in ("scales_h", "scales_w")]
    corners = bool(c.args.get("align_corners"))
    return _resized(c, "linear" if linear else "nearest", corners, c["output_size"], scales)


# ---- Norms ---------------------------------------------------------------------------------------


def _filled(c: Call, name: str, size: int, fill: float) -> str:
    given = c.args.get(name)
    return c.const(np.full(size, fill), c.dtype) if given is None else given


@translates("col2im")
def col2im(c: Call) -> str:
    if c.rank("input") != 3:
        c.refuse("inputs without a batch dimension")
    sizes = c.ints(c["output_size"]), c.ints(c["kernel_size"])
    return c.emit("Col2Im", c["input"], *sizes, dilations=c["dilation"],
                  pads=[*c["padding"], *c["padding"]], strides=c["stride"])  # fmt: skip


@translates("batch_norm")
def batch_norm(c: Call) -> str:
    if c["training"] or c["running_mean"] is None:
        c.refuse("statistics of the batch: export a module in eval() that tracks statistics")
    n = c.shape("running_mean")[0]
    scale, shift = _filled(c, "weight", n, 1.0), _filled(c, "bias", n, 0.0)
    return c.emit("BatchNormalization", c["input"], scale, shift, c["running_mean"],
                  c["running_var"], epsilon=c["eps"])  # fmt: skip


@translates("instance_norm")
def instance_norm(c: Call) -> str:
    if not c["use_input_stats"]:
        c.refuse("running statistics")
    n = c.shape("input")[1]
    scale, shift = _filled(c, "weight", n, 1.0), _filled(c, "bias", n, 0.0)
    return c.emit("InstanceNormalization", c["input"], scale, shift, epsilon=c["eps"])


@translates("layer_norm")
def layer_norm(c: Call) -> str:
    shape = c["normalized_shape"]
    scale = c["weight"] if c["weight"] is not None else c.const(np.ones(shape), c.dtype)
    inputs = [c["input"], scale] + ([c["bias"]] if c["bias"] is not None else [])
    return c.emit("LayerNormalization", *inputs, axis=-len(shape), epsilon=c["eps"])


@translates("rms_norm")
def rms_norm(c: Call) -> str:
    eps = float(np.finfo(c.dtype).eps) if c["eps"] is None else c["eps"]
    axes = c.ints([-1 - i for i in range(len(c["normalized_shape"]))])
    mean = c.emit("ReduceMean", c.emit("Mul", c["input"], c["input"]), axes, keepdims=1)
    root = c.emit("Sqrt", c.emit("Add", mean, c.number(eps, c.dtype)))
    made = c.emit("Div", c["input"], root)
    return made if c["weight"] is None else c.emit("Mul", made, c["weight"])


@translates("group_norm")
def group_norm(c: Call) -> str:
    groups, shape, x = c["num_groups"], c.shape("input"), c["input"]
    folded = c.emit("Reshape", x, c.ints([0, groups, -1]))
    ones, zeros = c.const(np.ones(groups), c.dtype), c.const(np.zeros(groups), c.dtype)
    made = c.emit("InstanceNormalization", folded, ones, zeros, epsilon=c["eps"])
    made = c.emit("Reshape", made, c.emit("Shape", x))
    wide = c.ints([shape[1], *[1] * (len(shape) - 2)])
    for op, name in (("Mul", "weight"), ("Add", "bias")):
        if c[name] is not None:
            made = c.emit(op, made, c.emit("Reshape", c[name], wide))
    return made


# ---- Attention -----------------------------------------------------------------------------------


@translates("scaled_dot_product_attention")
def attention(c: Call) -> str:
    if c["dropout_p"]:
        c.refuse("dropout")
    if c["enable_gqa"]:
        c.refuse("enable_gqa")
    q, k, rank = c["query"], c["key"], c.rank("query")
    width = c.shape("query")[-1]
    scale = 1 / math.sqrt(width) if c["scale"] is None else c["scale"]
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = c.emit("MatMul", q, c.emit("Transpose", k, perm=order))
    scores = c.emit("Mul", scores, c.number(scale, c.dtype))
    low = c.number(-math.inf, c.dtype)
    if c["is_causal"]:
        sides = [c.emit("Shape", t, start=rank - 2, end=rank - 1) for t in (q, k)]
        ones = c.emit("Expand", c.number(1, c.dtype), c.emit("Concat", *sides, axis=0))
        seen = c.cast(c.emit("Trilu", ones, upper=0), "bool")
        scores = c.emit("Where", seen, scores, low)
    if c["attn_mask"] is not None:
        boolean = c.fact("attn_mask")["dtype"] == "bool"
        scores = (
            c.emit("Where", c["attn_mask"], scores, low)
            if boolean
            else c.emit("Add", scores, c["attn_mask"])
        )
    return c.emit("MatMul", c.emit("Softmax", scores, axis=-1), c["value"])


# ---- Recurrent networks --------------------------------------------------------------------------

# Where ONNX's gates are among ours.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _gates(c: Call, i: int, kind: str) -> Any:
    given = c.node["args"]["params"][i]["v"]
    array = c.writer.arrays.get(given)
    if array is None:
        c.refuse("weights that are computed")
    parts = np.split(array, len(_GATES[kind]))
    return np.concatenate([parts[g] for g in _GATES[kind]])


def _layer(c: Call, kind: str, x: str, states: list[str], layer: int) -> list[str]:
    sides = 2 if c["bidirectional"] else 1
    per = 4 if c["has_biases"] else 2
    w, r, b = [], [], []
    for side in range(sides):
        at = (layer * sides + side) * per
        w.append(_gates(c, at, kind))
        r.append(_gates(c, at + 1, kind))
        if per == 4:
            b.append(np.concatenate([_gates(c, at + 2, kind), _gates(c, at + 3, kind)]))
    hidden = r[0].shape[1]
    part = c.ints([layer * sides]), c.ints([(layer + 1) * sides]), c.ints([0])
    start = [c.emit("Slice", s, *part) for s in states]
    inputs = [x, c.const(np.stack(w)), c.const(np.stack(r)), c.const(np.stack(b)) if b else "", ""]
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if sides == 2:
        attributes["direction"] = "bidirectional"
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    if c.node["op"] == "rnn_relu":
        attributes["activations"] = ["Relu"] * sides
    made = c.emit(kind, *inputs, *start, outputs=1 + len(states), **attributes)
    y = c.emit("Transpose", made[0], perm=[0, 2, 1, 3])
    return [c.emit("Reshape", y, c.ints([0, 0, -1])), *made[1:]]


@translates("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(c: Call) -> list[str]:
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(c.node["op"], "RNN")
    sides, per = (2 if c["bidirectional"] else 1), (4 if c["has_biases"] else 2)
    if len(c["params"]) != c["num_layers"] * sides * per:
        c.refuse("projections")
    if c["train"] and c["dropout"]:
        c.refuse("dropout in training: export a module in eval()")
    if c.rank("input") != 3:
        c.refuse("inputs without a batch dimension")
    states = list(c["hx"]) if kind == "LSTM" else [c["hx"]]
    x = c.emit("Transpose", c["input"], perm=[1, 0, 2]) if c["batch_first"] else c["input"]
    ends: list[list[str]] = [[] for _ in states]
    for layer in range(c["num_layers"]):
        x, *last = _layer(c, kind, x, states, layer)
        for end, state in zip(ends, last, strict=True):
            end.append(state)
    x = c.emit("Transpose", x, perm=[1, 0, 2]) if c["batch_first"] else x
    return [x, *[c.emit("Concat", *e, axis=0) for e in ends]]


# ---- Cells ---------------------------------------------------------------------------------------


def _parts_of(c: Call, kind: str, hidden: str, count: int) -> list[str]:
    """What a cell makes of its input (`ih`) or of its state (`hh`), a part for each gate."""
    turned = c.emit("Transpose", c[f"w_{kind}"], perm=[1, 0])
    made = c.emit("MatMul", hidden, turned)
    if c[f"b_{kind}"] is not None:
        made = c.emit("Add", made, c[f"b_{kind}"])
    if count == 1:
        return [made]
    size = c.shape("w_hh")[1]
    return c.emit("Split", made, c.ints([size] * count), axis=-1, outputs=count)


@translates("rnn_tanh_cell", "rnn_relu_cell")
def rnn_cell(c: Call) -> str:
    (a,), (b,) = _parts_of(c, "ih", c["input"], 1), _parts_of(c, "hh", c["hx"], 1)
    return c.emit("Tanh" if "tanh" in c.node["op"] else "Relu", c.emit("Add", a, b))


@translates("lstm_cell")
def lstm_cell(c: Call) -> list[str]:
    h, held = c["hx"]
    parts = zip(_parts_of(c, "ih", c["input"], 4), _parts_of(c, "hh", h, 4), strict=True)
    i, f, g, o = (c.emit("Add", a, b) for a, b in parts)
    i, f, o = (c.emit("Sigmoid", x) for x in (i, f, o))
    kept = c.emit("Mul", f, held)
    new = c.emit("Add", kept, c.emit("Mul", i, c.emit("Tanh", g)))
    return [c.emit("Mul", o, c.emit("Tanh", new)), new]


@translates("gru_cell")
def gru_cell(c: Call) -> str:
    x, h = _parts_of(c, "ih", c["input"], 3), _parts_of(c, "hh", c["hx"], 3)
    r, z = (c.emit("Sigmoid", c.emit("Add", x[k], h[k])) for k in (0, 1))
    n = c.emit("Tanh", c.emit("Add", x[2], c.emit("Mul", r, h[2])))
    return c.emit("Add", n, c.emit("Mul", z, c.emit("Sub", c["hx"], n)))
