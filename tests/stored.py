"""PyTorch's answers, kept for machines that have no PyTorch.

    want = stored.of_torch(lambda torch: [torch.sort(x)...])
    stored.same(mine, want, rtol=1e-6)

With PyTorch the function runs, and what it returns is compared live. Without, the answer comes
from tests/data/<file of the test>.json, where `python tests/data/store.py` has put it: arrays of up
to 24 numbers as they are, larger ones as eight weighted sums. An answer is any nesting of lists,
dictionaries, texts, numbers, arrays and tensors; it is found by the test that runs and how many
answers that test has had.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

try:
    import torch
except ImportError:
    torch = None

FOLDER = Path(__file__).resolve().parent / "data"
STORING = "TENON_TEST_STORE" in os.environ
WHOLE, SUMS = 24, 8
_count: dict[str, int] = {"": 0}
_fresh: dict[str, dict[str, list[Any]]] = {}


class Summary:
    """An array as it is stored: its dtype, shape and numbers, or weighted sums of them."""

    def __init__(self, text: str) -> None:
        self.dtype, shape, self.how, numbers = text.split("|")
        self.shape = tuple(int(n) for n in shape.split(",") if n)
        self.numbers = [complex(v) if "j" in v else float(v) for v in numbers.split()]

    def check(self, mine: np.ndarray, rtol: float, atol: float, text: str) -> None:
        """Fails unless `mine` is the array that was summed up."""
        assert mine.shape == self.shape, f"{text}: shape {mine.shape}, PyTorch has {self.shape}"
        if self.how == "all":
            want = np.array(self.numbers).astype(mine.dtype).reshape(self.shape)
            np.testing.assert_allclose(
                mine, want, rtol=max(rtol, 2e-9), atol=atol, equal_nan=True, err_msg=text
            )
            return
        sums, odd = _sums(mine, len(self.numbers) - 1)
        size = np.abs(np.where(np.isfinite(mine), mine, 0).astype(complex)).sum()
        near = max(rtol, 2e-9) * size + atol * mine.size
        assert odd == self.numbers[-1], f"{text}: NaN or infinities are elsewhere"
        np.testing.assert_allclose(sums, self.numbers[:-1], rtol=0, atol=near, err_msg=text)


def _sums(a: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """Weighted sums of the finite numbers, and a sum over the places of the others."""
    flat = a.reshape(-1).astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    finite = np.isfinite(flat)
    places = np.arange(flat.size)
    weights = np.cos(np.outer(np.arange(1, count + 1) * 0.7, places) + places % 7)
    odd = int(((~finite) * (places % 9973 + 1)).sum())
    return weights @ np.where(finite, flat, 0), odd


def _text(v: Any) -> str:
    """A number in ten digits."""
    if isinstance(v, np.complexfloating):
        return f"{v.real:.10g}{v.imag:+.10g}j"
    return f"{v:.10g}" if isinstance(v, np.floating) else str(int(v))


def array_of(t: Any) -> tuple[str, np.ndarray]:
    """The name of a tensor's dtype, and its numbers."""
    if isinstance(t, np.ndarray):
        return str(t.dtype), t
    name = str(t.dtype).split(".")[-1]
    t = t.detach().cpu()
    if name in ("bfloat16", "complex32"):
        t = t.float() if name == "bfloat16" else t.cfloat()
    return name, t.numpy(force=True) if torch is not None and isinstance(
        t, torch.Tensor
    ) else t.numpy()


def _is_array(v: Any) -> bool:
    return isinstance(v, np.ndarray) or (hasattr(v, "detach") and hasattr(v, "dtype"))


def _frozen(v: Any, brief: bool) -> Any:
    """An answer as JSON."""
    if _is_array(v):
        name, a = array_of(v)
        count = 1 if brief else SUMS
        shape = ",".join(map(str, a.shape))
        if a.size <= (count if brief else WHOLE):
            return f"{name}|{shape}|all|{' '.join(_text(x) for x in a.reshape(-1))}"
        sums, odd = _sums(a, count)
        return f"{name}|{shape}|sums|{' '.join(_text(x) for x in [*sums, odd])}"
    if isinstance(v, dict):
        return {str(k): _frozen(x, brief) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [_frozen(x, brief) for x in v]
    return v if v is None or isinstance(v, (bool, int, float)) else f"text|{v}"


def _thawed(v: Any) -> Any:
    if isinstance(v, str):
        return v[5:] if v.startswith("text|") else Summary(v)
    if isinstance(v, dict):
        return {k: _thawed(x) for k, x in v.items()}
    return [_thawed(x) for x in v] if isinstance(v, list) else v


@cache
def _kept(name: str) -> dict[str, list[Any]]:
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _place() -> tuple[str, str, int]:
    """The file and the name of the test that runs, and how many answers it has had."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    if test not in _count:
        _count.clear()
        _count[test] = 0
    _count[test] += 1
    file, _, name = test.partition("::")
    return Path(file).stem, name, _count[test] - 1


def of_torch(fn: Callable[[Any], Any], brief: bool = False, package: str = "torch") -> Any:
    """What fn(torch) returns; where there is no PyTorch (or no `package` beside it), what it
    returned where there was. `brief`: of an array only one sum is stored."""
    file, test, nth = _place()
    if torch is None or importlib.util.find_spec(package) is None:
        rows = _kept(file).get(test, [])
        if nth >= len(rows):
            pytest.skip(f"{package} is not installed, and no answer of it is stored")
        return _thawed(rows[nth])
    answer = fn(torch)
    if STORING:
        _fresh.setdefault(file, {}).setdefault(test, [])[nth:] = [_frozen(answer, brief)]
    else:
        rows = _kept(file).get(test, [])
        assert nth < len(rows), "no stored answer: run python tests/data/store.py"
    return answer


def same(mine: Any, want: Any, rtol: float = 1e-6, atol: float = 1e-9, text: str = "") -> None:
    """Fails unless two answers are the same: types, dtypes, shapes, and numbers to a tolerance."""
    if isinstance(want, Summary) or _is_array(want):
        name, a = array_of(mine)
        theirs = want.dtype if isinstance(want, Summary) else array_of(want)[0]
        assert name == theirs, f"{text}: dtype {name}, PyTorch has {theirs}"
        if isinstance(want, Summary):
            want.check(a, rtol, atol, text)
            return
        b = array_of(want)[1]
        assert a.shape == b.shape, f"{text}: shape {a.shape}, PyTorch has {b.shape}"
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg=text)
    elif isinstance(want, dict):
        assert list(map(str, mine)) == list(map(str, want)), text
        for (k, x), y in zip(mine.items(), want.values(), strict=True):
            same(x, y, rtol, atol, f"{text}[{k}]")
    elif isinstance(want, (list, tuple)):
        assert isinstance(mine, (list, tuple)) and len(mine) == len(want), f"{text}: {mine} {want}"
        for i, (x, y) in enumerate(zip(mine, want, strict=True)):
            same(x, y, rtol, atol, f"{text}[{i}]")
    elif isinstance(want, float):
        np.testing.assert_allclose(mine, want, rtol=max(rtol, 2e-9), atol=atol, err_msg=text)
    else:
        assert mine == want or str(mine) == want, f"{text}: {mine!r}, PyTorch has {want!r}"


def save() -> None:
    """Writes what this run has stored; tests that did not run keep what they have."""
    for name, tests in _fresh.items():
        rows = {**_kept(name), **tests}
        lines = [
            f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}"
            for k, v in sorted(rows.items())
        ]
        path = FOLDER / f"{name}.json"
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
