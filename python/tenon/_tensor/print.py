"""Text of tensors, equal to PyTorch's.

The elements to show are fetched first, as nested lists in which `...` stands for what is left out;
everything after that is text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from tenon import _C
from tenon._C import Tensor


class PrintOptions:
    """What `set_printoptions` sets."""

    def __init__(
        self, precision: int = 4, threshold: float = 1000, edgeitems: int = 3, linewidth: int = 80
    ) -> None:
        self.precision = precision
        self.threshold = threshold
        self.edgeitems = edgeitems
        self.linewidth = linewidth
        self.sci_mode: bool | None = None


OPTIONS = PrintOptions()
PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors are printed; `profile` is 'default', 'short' or 'full',
    another changes nothing."""
    counts = {"precision": precision, "edgeitems": edgeitems}
    numbers = {"threshold": threshold, "linewidth": linewidth, **counts}
    for name, value in numbers.items():
        if value is None:
            continue
        if not isinstance(value, int if name in counts else (int, float)) or not value >= 0:
            raise ValueError(f"set_printoptions: {name} is a number from 0 on, not {value!r}")
    start = PROFILES.get(profile) if profile is not None else None
    if start is not None:
        OPTIONS.precision, OPTIONS.threshold = start.precision, start.threshold
        OPTIONS.edgeitems, OPTIONS.linewidth = start.edgeitems, start.linewidth
    if precision is not None:
        OPTIONS.precision = precision
    if threshold is not None:
        OPTIONS.threshold = threshold
    if edgeitems is not None:
        OPTIONS.edgeitems = edgeitems
    if linewidth is not None:
        OPTIONS.linewidth = linewidth
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """What `set_printoptions` has set, as its keyword arguments."""
    return dict(vars(OPTIONS))


# ---- Elements ------------------------------------------------------------------------------------


def shown(t: Tensor, summarize: bool) -> Any:
    """The elements to show, as nested lists."""
    if not summarize or t.ndim == 0:
        return t.tolist()
    n, edge = t.shape[0], OPTIONS.edgeitems
    cut = n > 2 * edge
    if t.ndim == 1:
        if not cut:
            return t.tolist()
        return [*t[:edge].tolist(), ..., *(t[n - edge :].tolist() if edge else [])]
    if not cut:
        return [shown(t[i], True) for i in range(n)]
    head = [shown(t[i], True) for i in range(edge)]
    return [*head, ..., *(shown(t[i], True) for i in range(n - edge, n))]


def numbers(data: Any) -> Iterator[Any]:
    """All elements of nested lists, in order."""
    if isinstance(data, list):
        for item in data:
            yield from numbers(item)
    elif data is not ...:
        yield data


# ---- Formatting ----------------------------------------------------------------------------------


class Format:
    """How the numbers of one tensor are written: all alike and equally wide."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.floating = floating
        self.whole = True  # floats that are all integers: "1."
        self.scientific = False
        self.width = 1
        if not floating:
            self.width = max((len(str(v)) for v in values), default=1)
            return
        plain = [v for v in values if math.isfinite(v) and v != 0]
        if not plain:
            return
        smallest, largest = min(map(abs, plain)), max(map(abs, plain))
        self.whole = all(v == math.ceil(v) for v in plain)
        self.scientific = largest / smallest > 1000.0 or largest > 1.0e8
        if not self.whole:
            self.scientific = self.scientific or smallest < 1.0e-4
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        extra = 1 if self.whole and not self.scientific else 0
        self.width = max(1, *(len(self._plain(v)) + extra for v in plain))

    def _plain(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{OPTIONS.precision}e}"
        return f"{value:.0f}" if self.whole else f"{value:.{OPTIONS.precision}f}"

    def __call__(self, value: Any) -> str:
        if not self.floating:
            return str(value).rjust(self.width)
        text = self._plain(value)
        if self.whole and not self.scientific and math.isfinite(value):
            text += "."
        return text.rjust(self.width)


class ComplexFormat:
    """Real and imaginary parts, each in a format of its own."""

    def __init__(self, values: list[complex]) -> None:
        self.real = Format([v.real for v in values], True)
        self.imag = Format([v.imag for v in values], True)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = (self.imag(value.imag) + "j").lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return self.real(value.real) + sign + imag


def array_text(data: Any, ndim: int, indent: int, form: Format | ComplexFormat) -> str:
    """Nested lists with brackets and line breaks."""
    if ndim == 0:
        return form(data)
    if ndim > 1:
        parts = [
            "..." if item is ... else array_text(item, ndim - 1, indent + 1, form) for item in data
        ]
        return "[" + ("," + "\n" * (ndim - 1) + " " * (indent + 1)).join(parts) + "]"
    left_out = " ..." if OPTIONS.edgeitems else "..."
    words = [left_out if item is ... else form(item) for item in data]
    per_line = max(1, (OPTIONS.linewidth - indent) // (form.width + 2))
    lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def add_suffixes(text: str, suffixes: list[str], indent: int, apart: bool = False) -> str:
    """Appends what follows the elements, on the same line while there is room; `apart`: on another
    one in any case."""
    length = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if apart or length + len(suffix) + 2 > OPTIONS.linewidth:
            apart = False
            text += ",\n" + " " * indent + suffix
            length = indent + len(suffix)
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"


def usual_dtypes() -> tuple[Any, ...]:
    """dtypes that the numbers themselves show."""
    default = _C.get_default_dtype()
    return default, default.to_complex(), _C.int64, _C.bool


def history(t: Tensor) -> list[str]:
    """What the text says of gradients."""
    node = t.grad_fn
    said = ["requires_grad=True"] if t.requires_grad else []
    if node is not None:
        said = [f"grad_fn=<{node.name()}>"]
    forward = sys.modules.get("tenon.autograd.forward_ad")  # without it nothing has a tangent
    tangent = None if forward is None else forward.unpack_dual(t).tangent
    return said if tangent is None else [*said, f"tangent={tangent}"]


def elements_text(t: Tensor, indent: int) -> str:
    """The elements of a strided tensor."""
    if t.numel() == 0:
        return "[]"
    data = shown(t, t.numel() > OPTIONS.threshold)
    values = list(numbers(data))
    form: Format | ComplexFormat
    if t.dtype.is_complex:
        form = ComplexFormat(values)
    else:
        form = Format(values, t.dtype.is_floating_point)
    return array_text(data, t.ndim, indent, form)


def components(t: Tensor) -> dict[str, Tensor]:
    """What a sparse tensor is made of, by PyTorch's names."""
    if t.is_sparse:
        return {"indices": t._indices(), "values": t._values()}
    if t.layout in (_C.sparse_csr, _C.sparse_bsr):
        places = {"crow_indices": t.crow_indices(), "col_indices": t.col_indices()}
    else:
        places = {"ccol_indices": t.ccol_indices(), "row_indices": t.row_indices()}
    return {**places, "values": t.values()}


def components_text(t: Tensor, indent: int) -> str:
    """The components of a sparse tensor, each as a tensor on lines of its own."""
    lines = []
    for name, part in components(t).items():
        prefix = f"{name}=tensor("
        text = prefix + elements_text(part, indent + len(prefix))
        lines.append(text + (f", size={tuple(part.shape)})" if part.numel() == 0 else ")"))
    return (",\n" + " " * indent).join(lines)


def tensor_repr(t: Tensor) -> str:
    """`repr(t)`."""
    kind = type(t)
    parameter = kind.__name__ == "Parameter" and kind.__module__.startswith(("tenon.", "torch."))
    prefix = "tensor(" if kind is Tensor or parameter else f"{kind.__name__}("
    indent = len(prefix)
    plain = t.detach()
    if t.is_meta:
        suffixes = [f"device='{t.device}'", f"size={tuple(t.shape)}"]
        if t.dtype is not _C.get_default_dtype():
            suffixes.append(f"dtype={t.dtype}")
        return add_suffixes(prefix + "...", suffixes + history(t), indent)
    suffixes = [] if t.is_cpu else [f"device='{t.device}'"]
    if t.layout is not _C.strided:
        suffixes += [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
        if t.dtype not in usual_dtypes():
            suffixes.append(f"dtype={t.dtype}")
        suffixes.append(f"layout={t.layout}")
        body = components_text(plain, indent)
    elif t.numel() == 0:
        if t.ndim != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype is not _C.get_default_dtype():
            suffixes.append(f"dtype={t.dtype}")
        body = "[]"
    else:
        if OPTIONS.edgeitems == 0:  # nothing shows the sizes
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype not in usual_dtypes():
            suffixes.append(f"dtype={t.dtype}")
        body = elements_text(plain, indent)
    text = add_suffixes(prefix + body, suffixes + history(t), indent, t.is_sparse)
    return text if prefix == "tensor(" else marked(t, text)


def marked(t: Tensor, text: str) -> str:
    """The text of a tensor of a class of its own, which says whether it is a parameter."""
    from tenon.nn import Parameter

    return f"Parameter({text})" if isinstance(t, Parameter) else text


def package_name() -> str:
    """What the package calls itself in texts: the program may have imported it by another name."""
    return repr(_C.float32).partition(".")[0]


def named_result_repr(result: Any) -> str:
    """Text of results with names, as of `max(dim)`."""
    cls = type(result)
    names = [name for name in cls.__match_args__]
    lines = ",\n".join(f"{name}={item!r}" for name, item in zip(names, result))
    return f"{package_name()}.return_types.{cls.__name__}(\n{lines})"
