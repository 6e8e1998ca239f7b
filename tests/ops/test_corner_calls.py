"""Calls that samples do not try: numbers near the ends of a dtype, infinities between finite ones,
factors that do not fit. Each line of `corner_calls.txt` is an expression that both libraries are
asked; of a tensor its dtype, shape and strides count too, of an error its class."""

from __future__ import annotations

import math
import warnings
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stored
import tenon

CALLS = (Path(__file__).parent / "corner_calls.txt").read_text("utf-8").splitlines()
NUMBERS = [1.5, -2.0, 0.0, -0.0, math.inf, -math.inf, math.nan]


def names(lib: Any) -> dict[str, Any]:
    return {
        "lib": lib, "t": lib.tensor, "u": partial(lib.tensor, dtype=lib.uint8), "inf": math.inf,
        "nan": math.nan, "F": lib.nn.functional, "M": [[1, 2], [3, 4]],
        "PARTS": [complex(a, b) for a in NUMBERS for b in NUMBERS],
        "P": [[1.7, 2.0, 3.0], [4.0, 5.0, 6.1]], "N": [math.sin(i) * 3 for i in range(300)],
        "HALVES": [lib.float16, lib.bfloat16], "h": lambda n, d: lib.tensor(n, dtype=d),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """An answer that can be stored."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "stride"):
        dtype = str(value.dtype).split(".")[-1]
        moving = [s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1]
        wide = value.float() if "float16" in dtype else value
        if value.is_complex():
            wide = [value.real.clone(), value.imag.clone()]
        return [dtype, list(value.shape), moving if value.numel() else [], wide]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def answer(lib: Any, text: str) -> Any:
    """What the text gives, or the name of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(eval(text, names(lib)))
        except Exception as err:
            return f"{type(err).__name__.lstrip('_')} raised"


def label(text: str) -> str:
    return text if len(text) < 90 else f"{text[:80]}~{zlib.crc32(text.encode()):08x}"


@pytest.mark.parametrize("text", CALLS, ids=label)
def test_as_pytorch(text: str) -> None:
    stored.same(answer(tenon, text), stored.of_torch(lambda lib: answer(lib, text)), 1e-6, 0)


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16])
def test_compiled_functions_round_numbers_alike(dtype: Any) -> None:
    def steps(x: tenon.Tensor, scale: tenon.Tensor) -> tenon.Tensor:
        return ((x * 0.1 + x / 0.3) * 2 - x * scale).abs() // 0.7

    x, scale = tenon.linspace(-4, 4, 5000).to(dtype), tenon.tensor(0.3)
    compiled, want = tenon.compile(steps), steps(x, scale)
    for _ in range(3):
        assert compiled(x, scale).tolist() == want.tolist()
