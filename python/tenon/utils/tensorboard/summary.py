"""Summaries: what an event says under a tag, as the messages that TensorBoard reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tenon
from tenon.utils.tensorboard import _media
from tenon.utils.tensorboard._records import double, doubles, floats, integer, single, text

_DT_FLOAT, _DT_STRING = 1, 7


def _value(tag: str, field: bytes, metadata: bytes = b"") -> bytes:
    """A summary of one value."""
    return text(1, text(1, tag) + field + (text(9, metadata) if metadata else b""))


def _plugin(name: str, content: bytes = b"") -> bytes:
    return text(1, text(1, name) + text(2, content))


def _number(x: Any) -> float:
    return float(x.item() if hasattr(x, "item") else x)


def scalar(name: str, scalar_value: Any, new_style: bool = False) -> bytes:
    """A number."""
    if new_style:
        tensor = integer(1, _DT_FLOAT) + text(2, b"") + floats(5, [_number(scalar_value)])
        return _value(name, text(8, tensor), _plugin("scalars"))
    return _value(name, single(2, _number(scalar_value)))


def _limits() -> list[float]:
    """Bucket borders that grow by a tenth, from 1e-12 to 1e20, on both sides of 0."""
    limits, x = [], 1e-12
    while x < 1e20:
        limits.append(x)
        x *= 1.1
    return [-v for v in reversed(limits)] + [0.0] + limits


def histogram(name: str, values: Any, bins: Any = "tensorflow") -> bytes:
    """How the elements of a tensor are spread."""
    x = tenon.as_tensor(values).detach().cpu().flatten().double()
    if x.numel() == 0:
        raise ValueError("The input has no element.")
    if bins == "tensorflow":
        edges = tenon.tensor([*_limits(), math.inf], dtype=tenon.float64)
    elif isinstance(bins, int) or isinstance(bins, str):
        count = bins if isinstance(bins, int) else 64
        low, high = float(x.min()), float(x.max())
        edges = tenon.linspace(low, high if high > low else low + 1, count + 1, dtype=tenon.float64)
        edges = edges[1:]
    else:
        edges = tenon.as_tensor(bins, dtype=tenon.float64)[1:]
    place = tenon.bucketize(x, edges).clamp(max=edges.numel() - 1)
    counts = tenon.bincount(place, minlength=edges.numel()).tolist()
    limits = [1e308 if math.isinf(v) else v for v in edges.tolist()]
    kept = [i for i, n in enumerate(counts) if n]
    first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, len(limits) - 1)
    message = (
        double(1, float(x.min())) + double(2, float(x.max())) + double(3, x.numel())
        + double(4, float(x.sum())) + double(5, float((x * x).sum()))
        + doubles(6, limits[first : last + 1]) + doubles(7, counts[first : last + 1])
    )  # fmt: skip
    return _value(name, text(5, message))


def image(tag: str, tensor: Any, dataformats: str = "CHW") -> bytes:
    """A picture."""
    pixels = _media.bytes_of_image(tensor, dataformats)
    height, width, channels = pixels.shape
    message = integer(1, height) + integer(2, width) + integer(3, channels)
    return _value(tag, text(4, message + text(4, _media.png(pixels))))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> bytes:
    """Sound in [-1, 1]."""
    data, frames = _media.wav(tensor, sample_rate)
    message = single(1, sample_rate) + integer(2, 1) + integer(3, frames)
    return _value(tag, text(6, message + text(4, data) + text(5, "audio/wav")))


def text_summary(tag: str, string: str) -> bytes:
    """Text, which is shown as Markdown."""
    tensor = integer(1, _DT_STRING) + text(2, text(2, integer(1, 1))) + text(8, string)
    return _value(f"{tag}/text_summary", text(8, tensor), _plugin("text", integer(1, 0)))


def pr_curve(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> bytes:
    """Precision and recall by threshold; predictions lie in [0, 1]."""
    count = min(num_thresholds, 127)
    truth = tenon.as_tensor(labels).flatten().double()
    guess = tenon.as_tensor(predictions).flatten().double()
    weight = tenon.ones_like(guess) if weights is None else tenon.as_tensor(weights).double()
    place = (guess * (count - 1)).floor().long()
    sides = [
        tenon.zeros(count, dtype=tenon.float64).index_add(0, place, w)
        for w in (weight * truth, weight * (1 - truth))
    ]
    tp, fp = (s.flip(0).cumsum(0).flip(0) for s in sides)
    tn, fn = fp[0] - fp, tp[0] - tp
    tiny = 1e-7
    rows = [tp, fp, tn, fn, tp / (tp + fp).clamp(min=tiny), tp / (tp + fn).clamp(min=tiny)]
    shape = text(2, integer(1, 6)) + text(2, integer(1, count))
    tensor = integer(1, _DT_FLOAT) + text(2, shape) + floats(5, tenon.cat(rows).tolist())
    content = integer(1, 0) + integer(2, count)
    return _value(tag, text(8, tensor), _plugin("pr_curves", content))


# ---- Hyperparameters -----------------------------------------------------------------------------


def _any(value: Any) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return integer(4, value)
    if isinstance(value, str):
        return text(3, value)
    return double(2, _number(value))


def _hparam_info(name: str, value: Any, discrete: Mapping[str, Any]) -> bytes:
    kind = 2 if isinstance(value, bool) else 1 if isinstance(value, str) else 3
    domain = b"".join(text(1, _any(v)) for v in discrete.get(name, ()))
    return text(1, name) + integer(4, kind) + (text(5, domain) if domain else b"")


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    hparam_domain_discrete: Mapping[str, Any] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """Three summaries: the experiment, its start with the parameters, its end."""
    for name, value in hparam_dict.items():
        if not isinstance(value, (bool, str, int, float)) and not hasattr(value, "item"):
            raise ValueError(
                f"value of hyperparameter {name!r} should be an int, float, str, bool or Tensor"
            )
    discrete = hparam_domain_discrete or {}
    infos = b"".join(text(5, _hparam_info(n, v, discrete)) for n, v in hparam_dict.items())
    metrics = b"".join(text(6, text(1, text(2, n))) for n in metric_dict)
    pairs = b"".join(text(1, text(1, n) + text(2, _any(v))) for n, v in hparam_dict.items())

    def session(tag: str, field: int, content: bytes) -> bytes:
        return _value(tag, b"", _plugin("hparams", integer(1, 0) + text(field, content)))

    return (
        session("_hparams_/experiment", 2, infos + metrics),
        session("_hparams_/session_start_info", 3, pairs),
        session("_hparams_/session_end_info", 4, integer(1, 1)),
    )


# ---- Layouts and graphs --------------------------------------------------------------------------


def custom_scalars(layout: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Charts of several scalars: {category: {title: ["Multiline" | "Margin", tags]}}."""
    categories = b""
    for category, charts in layout.items():
        inner = b""
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                names = zip((1, 2, 3), tags, strict=True)
                content = text(3, text(1, b"".join(text(f, t) for f, t in names)))
            else:
                content = text(2, b"".join(text(1, t) for t in tags))
            inner += text(2, text(1, title) + content)
        categories += text(2, text(1, category) + inner)
    tensor = integer(1, _DT_STRING) + text(2, b"") + text(8, integer(1, 0) + categories)
    return _value("custom_scalars__config__", text(8, tensor), _plugin("custom_scalars"))


def graph(model: Any, inputs: Any) -> bytes:
    """The modules of a model as a graph, by the tensors that go from one call to the next."""
    made: dict[int, str] = {}
    keep: list[Any] = []  # so that no two tensors of the call have one id
    nodes: list[bytes] = []

    def note(name: str, kind: str, given: Any, result: Any) -> None:
        found = [made[id(t)] for t in _tensors(given) if id(t) in made]
        nodes.append(text(1, name) + text(2, kind) + b"".join(text(3, n) for n in found))
        for t in _tensors(result):
            made[id(t)] = name
            keep.append(t)

    args = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    for i, t in enumerate(_tensors(args)):
        note(f"input_{i}", "Input", (), t)
    handles = []
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            path = f"{type(model).__name__}/{name.replace('.', '/')}".rstrip("/")
            handles.append(
                module.register_forward_hook(
                    lambda m, given, result, path=path: note(path, type(m).__name__, given, result)
                )
            )
    try:
        with tenon.no_grad():
            result = model(*args)
    finally:
        for handle in handles:
            handle.remove()
    note("output", "Output", result, ())
    return b"".join(text(1, n) for n in nodes) + text(4, integer(1, 22))


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, tenon.Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value
    return (
        [t for v in items for t in _tensors(v)] if isinstance(value, (Mapping, list, tuple)) else []
    )
