"""assert_close: whether two values, or containers of values, agree up to a tolerance.

actual and expected are close where |actual - expected| <= atol + rtol * |expected|. Tolerances that
are not given follow from the dtypes. Messages are worded as PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.print import components

__all__ = ["assert_allclose", "assert_close"]

# rtol, atol; of other dtypes both are 0.
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip

_LAYOUTS = {
    getattr(tenon, f"sparse_{name}"): name.upper() for name in "coo csr csc bsr bsc".split()
}


@dataclass
class _Rules:
    """The keyword arguments of assert_close."""

    given: tuple[float, ...]  # rtol and atol, or nothing
    equal_nan: bool
    allow_subclasses: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool
    msg: str | Callable[[str], str] | None

    def fail(self, text: str, place: str) -> None:
        text = _placed(text, place)
        if isinstance(self.msg, str):
            text = self.msg
        elif self.msg is not None:
            text = self.msg(text)
        raise AssertionError(text)

    def tolerances(self, *dtypes: tenon.dtype) -> tuple[float, ...]:
        """rtol and atol: as given, else the widest of the dtypes'."""
        if self.given:
            return self.given
        return default_tolerances(*dtypes)


def default_tolerances(*inputs: Tensor | tenon.dtype) -> tuple[float, float]:
    """The widest rtol and atol of dtypes, or of those of tensors."""
    dtypes = [x.dtype if isinstance(x, Tensor) else x for x in inputs]
    for kind in (type(x) for x in dtypes if not isinstance(x, tenon.dtype)):
        raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {kind} instead.")
    rows = [TOLERANCES.get(repr(d).rpartition(".")[2], (0.0, 0.0)) for d in dtypes]
    return max(r for r, _ in rows), max(a for _, a in rows)


def get_tolerances(
    *inputs: Tensor | tenon.dtype, rtol: float | None, atol: float | None, id: Any = ()
) -> tuple[float, float]:
    """rtol and atol where both are given, else default_tolerances."""
    del id
    if rtol is not None and atol is not None:
        return rtol, atol
    if rtol is not None or atol is not None:
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    return default_tolerances(*inputs)


def _placed(text: str, place: str) -> str:
    return f"{text}\n\nThe failure occurred for item {place}" if place else text


def _tensor_of(value: Any) -> Tensor | None:
    """The value as a tensor, where assert_close compares it as one."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__array__"):
        return tenon.as_tensor(value)
    return None


def _check_attributes(actual: Tensor, expected: Tensor, rules: _Rules, place: str) -> None:
    def differ(name: str, a: Any, b: Any) -> None:
        if a != b:
            rules.fail(f"The values for attribute '{name}' do not match: {a} != {b}.", place)

    differ("shape", actual.shape, expected.shape)
    if rules.check_layout:
        differ("layout", actual.layout, expected.layout)
    if rules.check_device:
        differ("device", actual.device, expected.device)
    if rules.check_dtype:
        differ("dtype", actual.dtype, expected.dtype)
    if rules.check_stride and not {actual.layout, expected.layout} & _LAYOUTS.keys():
        differ("stride()", actual.stride(), expected.stride())


def _greatest(kind: str, diff: Tensor, limit: str) -> str:
    """The line of the greatest difference and its place."""
    flat = diff.flatten()
    worst = int(flat.argmax())
    value, at = flat[worst].item(), []
    for size in reversed(diff.shape):
        at.append(worst % size)
        worst //= size
    where = f" at index {tuple(reversed(at))}" if diff.ndim else ""
    return f"Greatest {kind} difference: {value}{where}{limit}"


def _compare_components(actual: Tensor, expected: Tensor, rules: _Rules, place: str) -> None:
    """Sparse tensors of one layout: indices are equal, values close."""
    if actual.is_sparse:
        actual, expected = actual.coalesce(), expected.coalesce()
    if actual._nnz() != expected._nnz():
        rules.fail(
            f"The number of specified values in sparse {_LAYOUTS[actual.layout]} tensors does not "
            f"match: {actual._nnz()} != {expected._nnz()}",
            place,
        )
    theirs = components(expected)
    for name, part in components(actual).items():
        own = rules if name == "values" else replace(rules, given=(0.0, 0.0))
        kind = f"Sparse {_LAYOUTS[actual.layout]} {name}"
        _compare_tensors(part, theirs[name], own, place, kind)


def _compare_tensors(
    actual: Tensor, expected: Tensor, rules: _Rules, place: str, kind: str = "Tensor-likes"
) -> None:
    _check_attributes(actual, expected, rules, place)
    if actual.is_meta or expected.is_meta:
        return  # there are no values
    if actual.is_quantized and expected.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
        kind = "Quantized tensor-likes"
    if tenon.strided not in (actual.layout, expected.layout) and actual.layout == expected.layout:
        _compare_components(actual, expected, rules, place)
        return
    actual, expected = actual.to_dense(), expected.to_dense()
    rtol, atol = rules.tolerances(actual.dtype, expected.dtype)
    actual, expected = actual.detach().cpu(), expected.detach().cpu()
    if actual.dtype != expected.dtype:
        both = tenon.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(both), expected.to(both)
    if actual.dtype == tenon.bool:
        actual, expected = actual.to(tenon.uint8), expected.to(tenon.uint8)
    if rtol == atol == 0 and not rules.equal_nan:
        close = actual == expected  # whole numbers beyond 2**53 differ by 1, too
    else:
        close = tenon.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=rules.equal_nan)
    if bool(close.all()):
        return
    exact = rtol == atol == 0
    title = f"{kind} are not {'equal' if exact else 'close'}!"
    up_to = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    if actual.ndim == 0:
        title = title.replace("Tensor-likes", "Scalars")
        a, e = actual.item(), expected.item()
        lines = [
            f"Expected {e} but got {a}.",
            f"Absolute difference: {abs(a - e)}{up_to[0]}",
            f"Relative difference: {math.inf if e == 0 else abs(a - e) / abs(e)}{up_to[1]}",
        ]
    else:
        if not (actual.dtype.is_complex or actual.dtype.is_floating_point):
            actual, expected = actual.long(), expected.long()
        diff = (actual - expected).abs().masked_fill(close, 0)
        relative = (diff / expected.abs()).masked_fill(close, 0)
        total, wrong = close.numel(), int((~close).sum())
        lines = [
            f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})",
            _greatest("absolute", diff, up_to[0]),
            _greatest("relative", relative, up_to[1]),
        ]
    rules.fail(title + "\n\n" + "\n".join(lines), place)


def _compare(actual: Any, expected: Any, rules: _Rules, place: str) -> None:
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(set(expected) - set(actual))}\n"
                f"Additional keys in the actual mapping: {sorted(set(actual) - set(expected))}"
            )
            raise AssertionError(_placed(text, place))
        for key in expected:
            _compare(actual[key], expected[key], rules, f"{place}[{key!r}]")
        return
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise AssertionError(_placed(text, place))
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, e, rules, f"{place}[{i}]")
        return
    _compare_leaves(actual, expected, rules, place)


def _compare_leaves(actual: Any, expected: Any, rules: _Rules, place: str) -> None:
    if actual is None or expected is None:
        if actual is not expected:
            rules.fail(f"None mismatch: {actual} is not {expected}", place)
        return
    if isinstance(actual, Number) and isinstance(expected, Number):
        actual, expected = (v.item() if hasattr(v, "item") else v for v in (actual, expected))
        if rules.check_dtype and type(actual) is not type(expected):
            if bool in (type(actual), type(expected)):
                raise _of_types(actual, expected, place)
            rules.fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.", place)
        wide = tenon.complex128 if complex in (type(actual), type(expected)) else tenon.float64
        whole = all(isinstance(v, int) for v in (actual, expected))
        a, e = (tenon.tensor(v, dtype=tenon.int64 if whole else wide) for v in (actual, expected))
        _compare_tensors(a, e, rules, place)
        return
    pair = _tensor_of(actual), _tensor_of(expected)
    alike = type(actual) is type(expected) or rules.allow_subclasses
    if pair[0] is None or pair[1] is None or not alike:
        raise _of_types(actual, expected, place)
    _compare_tensors(pair[0], pair[1], rules, place)


def _of_types(actual: Any, expected: Any, place: str) -> TypeError:
    kinds = f"{type(actual)} and {type(expected)}"
    text = f"No comparison pair was able to handle inputs of type {kinds}."
    return TypeError(_placed(text, place))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises AssertionError where the two are not close, TypeError where they cannot be compared.

    Tensors, arrays, numbers, None, and sequences and mappings of them, nested to any depth. rtol
    and atol are given together or not at all. msg replaces the text, or makes it of the text, where
    values or their attributes differ.
    """
    __tracebackhide__ = True
    given = tuple(v for v in (rtol, atol) if v is not None)
    if len(given) == 1:
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
            f"{'rtol' if rtol is None else 'atol'}."
        )
    rules = _Rules(
        given, equal_nan, allow_subclasses, check_device, check_dtype, check_layout, check_stride,
        msg,
    )  # fmt: skip
    _compare(actual, expected, rules, "")


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The old form of assert_close: converts, and compares neither devices nor dtypes."""
    a, e = (v if isinstance(v, Tensor) else tenon.tensor(v) for v in (actual, expected))
    assert_close(
        a, e, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
        msg=msg or None,
    )  # fmt: skip
