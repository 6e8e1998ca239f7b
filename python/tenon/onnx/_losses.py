"""Translations of losses and distances."""

from __future__ import annotations

from typing import Any

from tenon.onnx._operators import length
from tenon.onnx._translate import Call, translates


def _reduced(c: Call, x: str) -> str:
    if c.args.get("weight") is not None:
        c.refuse("weights")
    if c["reduction"] == "none":
        return x
    op = "ReduceSum" if c["reduction"] == "sum" else "ReduceMean"
    return c.emit(op, x, keepdims=0)


def _off(c: Call) -> str:
    return c.emit("Sub", c.operand("input", c.dtype), c.operand("target", c.dtype))


@translates("mse_loss")
def mse(c: Call) -> str:
    off = _off(c)
    return _reduced(c, c.emit("Mul", off, off))


@translates("l1_loss")
def l1(c: Call) -> str:
    return _reduced(c, c.emit("Abs", _off(c)))


@translates("huber_loss", "smooth_l1_loss")
def huber(c: Call) -> str:
    smooth = c.node["op"] == "smooth_l1_loss"
    limit = c["beta" if smooth else "delta"]
    off = c.emit("Abs", _off(c))
    if limit == 0:
        return _reduced(c, off)
    near = c.emit("Mul", c.emit("Mul", off, off), 0.5 / limit if smooth else 0.5)
    far = c.emit("Sub", off, 0.5 * limit)
    if not smooth:
        far = c.emit("Mul", far, limit)
    return _reduced(c, c.emit("Where", c.emit("Less", off, limit), near, far))


@translates("binary_cross_entropy")
def bce(c: Call) -> str:
    x, y = c["input"], c["target"]
    yes, no = (
        c.emit("Max", c.emit("Log", p), -100.0) for p in (x, c.emit("Sub", 1.0, x))
    )  # fmt: skip
    good = c.emit("Mul", y, yes)
    bad = c.emit("Mul", c.emit("Sub", 1.0, y), no)
    return _reduced(c, c.emit("Neg", c.emit("Add", good, bad)))


@translates("binary_cross_entropy_with_logits")
def bce_logits(c: Call) -> str:
    if c["pos_weight"] is not None:
        c.refuse("pos_weight")
    x = c["input"]
    away = c.emit("Log", c.emit("Add", c.emit("Exp", c.emit("Neg", c.emit("Abs", x))), 1.0))
    line = c.emit("Sub", c.emit("Relu", x), c.emit("Mul", x, c["target"]))
    return _reduced(c, c.emit("Add", line, away))


@translates("kl_div")
def kl_div(c: Call) -> str:
    x, y = c["input"], c["target"]
    if c["log_target"]:
        made = c.emit("Mul", c.emit("Exp", y), c.emit("Sub", y, x))
    else:
        log = c.emit("Log", c.emit("Where", c.emit("Equal", y, 0.0), 1.0, y))
        made = c.emit("Mul", y, c.emit("Sub", log, x))
    if c["reduction"] != "batchmean":
        return _reduced(c, made)
    batch = c.cast(c.emit("Squeeze", c.emit("Shape", x, start=0, end=1)), c.dtype)
    return c.emit("Div", c.emit("ReduceSum", made, keepdims=0), batch)


@translates("nll_loss", "cross_entropy")
def classes(c: Call) -> str:
    target = c.fact("target")
    if c.args.get("label_smoothing") or target["dtype"].startswith("float"):
        c.refuse("smoothed labels and probabilities as labels")
    if c.rank("input") < 2:
        c.refuse("inputs without a batch dimension")
    op = "SoftmaxCrossEntropyLoss" if "entropy" in c.node["op"] else "NegativeLogLikelihoodLoss"
    weight = [] if c["weight"] is None else [c["weight"]]
    return c.emit(op, c["input"], c["target"], *weight, ignore_index=c["ignore_index"],
                  reduction=c["reduction"])  # fmt: skip


# ---- Distances -----------------------------------------------------------------------------------


@translates("pairwise_distance")
def pairwise(c: Call) -> str:
    off = c.emit("Add", c.emit("Sub", c["x1"], c["x2"]), c["eps"])
    return length(c, off, c["p"], c.ints([-1]), c["keepdim"])


@translates("cosine_similarity")
def cosine(c: Call) -> str:
    a, b, axes = c["x1"], c["x2"], c.ints([c["dim"]])
    lengths: list[Any] = [
        c.emit("Max", length(c, x, 2, axes, False), c["eps"]) for x in (a, b)
    ]  # fmt: skip
    dot = c.emit("ReduceSum", c.emit("Mul", a, b), axes, keepdims=0)
    return c.emit("Div", dot, c.emit("Mul", *lengths))
