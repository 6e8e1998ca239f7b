"""Elementary functions at every number of float16 and bfloat16 against float64: rounded once,
whatever instruction computes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import tenon as tn
from scipy import special

BITS = np.arange(65536, dtype=np.uint16)
PLACES = {"float16": (10, -14), "bfloat16": (7, -126)}  # bits of the fraction, least exponent


def sigmoid(x: np.ndarray) -> np.ndarray:
    return special.expit(x)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": special.erf, "erfc": special.erfc, "sigmoid": sigmoid, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "abs": np.abs,
    "neg": np.negative, "round": np.rint, "floor": np.floor, "trunc": np.trunc,
    "square": np.square,
}  # fmt: skip
LAYERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x),
}


def numbers(dtype: str) -> tuple[tn.Tensor, np.ndarray]:
    """All finite numbers and infinities, which are no NaN."""
    t = tn.tensor(BITS.view(np.int16)).view(getattr(tn, dtype))
    x = t.double().numpy()
    keep = ~np.isnan(x)
    return tn.tensor(BITS.view(np.int16)[keep]).view(getattr(tn, dtype)), x[keep]


def check(found: tn.Tensor, exact: np.ndarray, dtype: str) -> None:
    """Within 0.501 of the last place, which is that of the largest number beyond the largest."""
    fraction, least = PLACES[dtype]
    got, top = found.double().numpy(), tn.finfo(getattr(tn, dtype)).max
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.floor(np.log2(np.abs(exact))), least)
        place = np.exp2(np.where(np.isfinite(exponent), exponent, least) - fraction)
        beyond = np.abs(exact) > top
        near = np.where(np.isinf(got), np.sign(got) * top, got)
        held = np.where(beyond, np.sign(exact) * top, exact)
        off = np.abs(near - held) / np.where(beyond, 1, place)
    counted = ~np.isnan(exact)
    worst = np.argmax(np.where(counted, off, 0))
    assert off[worst] <= 0.501, (found[int(worst)], exact[worst], off[worst])
    large = np.abs(exact) >= top * (1 + 2.0 ** -(fraction + 1))
    assert np.isinf(got[counted & large]).all()


@pytest.mark.parametrize("dtype", list(PLACES))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: str) -> None:
    t, x = numbers(dtype)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x)
    check(getattr(tn, name)(t), exact, dtype)


@pytest.mark.parametrize("dtype", list(PLACES))
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: str) -> None:
    t, x = numbers(dtype)
    finite = np.isfinite(x)
    t, x = t[tn.tensor(finite)], x[finite]
    check(getattr(tn.nn.functional, name)(t), LAYERS[name](x), dtype)


@pytest.mark.parametrize("decimals", [-2, 1, 3])
@pytest.mark.parametrize("dtype", list(PLACES))
def test_decimals(dtype: str, decimals: int) -> None:
    """x * 10^n in float, to the nearest whole number, of two the even one, and back."""
    t = numbers(dtype)[0][::7]
    x, ten = t.float().numpy(), np.float32(10.0 ** abs(decimals))
    with np.errstate(all="ignore"):
        want = np.rint(x / ten) * ten if decimals < 0 else np.rint(x * ten) / ten
    assert tn.equal(tn.round(t, decimals=decimals), tn.tensor(want).to(t.dtype)) or np.array_equal(
        tn.round(t, decimals=decimals).float().numpy(),
        tn.tensor(want).to(t.dtype).float().numpy(),
        equal_nan=True,
    )


@pytest.mark.skipif("TENON_CPU_ISA" in os.environ, reason="the instruction set is given")
@pytest.mark.parametrize("isa", ["avx2", "baseline"])
def test_with_other_instructions(isa: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, "TENON_CPU_ISA": isa}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
