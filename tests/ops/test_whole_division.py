"""Division of whole numbers by vectors of floating ones, and conversions that go the same way:
exact for every width, beyond what those hold and at the ends of each range, against NumPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tenon as tn

COUNT = 50_001
WIDTHS = ["uint8", "int8", "int16", "int32", "int64"]


def numbers(dtype: str, seed: int) -> np.ndarray:
    """Of every number of bits, and both ends."""
    draw, info = np.random.default_rng(seed), np.iinfo(dtype)
    x = draw.integers(info.min, info.max, COUNT, dtype=dtype, endpoint=True)
    x = x >> draw.integers(0, info.bits, COUNT).astype(dtype)
    ends = [info.min, info.max, info.max - 1, info.min + 1, 0, 1, 2, 3]
    ends += [-1, -2, 2**51, 2**51 - 1, -(2**51), -(2**51) - 1, 2**53 + 1]
    ends = [e for e in ends if info.min <= e <= info.max]
    x[: len(ends) * 40] = np.repeat(np.array(ends, dtype), 40)
    return x


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Divisors that are not 0; of a third of them whole multiples and their neighbours."""
    x, y = numbers(dtype, 1), np.random.default_rng(2).permutation(numbers(dtype, 3))
    y[y == 0] = 7
    third = slice(COUNT // 3, None, 3)
    with np.errstate(over="ignore"):
        x[third] = (
            x[third] // y[third] * y[third] + np.array([-1, 0, 1]).astype(dtype)[x[third] % 3]
        )
    return x, y


@pytest.mark.parametrize("dtype", WIDTHS)
def test_quotients_and_remainders_are_exact(dtype: str) -> None:
    x, y = pairs(dtype)
    a, b = tn.from_numpy(x), tn.from_numpy(y)
    with np.errstate(all="ignore"):
        wanted = {
            "floor": np.floor_divide(x, y), "remainder": np.remainder(x, y), "fmod": np.fmod(x, y),
        }  # fmt: skip
        # What is left is exact, so that the cut quotient is, too; the least by -1 wraps.
        wanted["trunc"] = np.where(
            y.astype(object) == -1, -x, (x - wanted["fmod"]) // np.where(y == 0, 1, y)
        ).astype(dtype)
    found = {
        "floor": a // b, "remainder": a % b, "fmod": tn.fmod(a, b),
        "trunc": tn.div(a, b, rounding_mode="trunc"),
    }  # fmt: skip
    for name, got in found.items():
        wrong = np.flatnonzero(got.numpy() != wanted[name])[:4]
        assert not wrong.size, (name, x[wrong], y[wrong], got.numpy()[wrong], wanted[name][wrong])
    for number in (3, 7, 100):
        assert np.array_equal((a // number).numpy(), x // np.array(number, dtype))
        assert np.array_equal((a % number).numpy(), x % np.array(number, dtype))
        assert np.array_equal((a[::2] // number).numpy(), x[::2] // np.array(number, dtype))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        a // tn.zeros_like(b)


@pytest.mark.parametrize("to", ["float32", "float64"])
def test_whole_numbers_become_floating_ones_with_one_rounding(to: str) -> None:
    x = numbers("int64", 4)
    for part in (x, x >> 16, x[1:] % 1000, x[:5]):
        assert np.array_equal(tn.from_numpy(part).to(getattr(tn, to)).numpy(), part.astype(to))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floating_numbers_become_whole_ones_by_cutting(dtype: str) -> None:
    draw = np.random.default_rng(5)
    small = draw.uniform(-3e9, 3e9, COUNT).astype(dtype)
    large = np.ldexp(draw.uniform(-1, 1, COUNT), draw.integers(0, 63, COUNT)).astype(dtype)
    ends = np.array([2.0**31, -(2.0**31), 2.0**31 - 1, -(2.0**31) - 1, -0.5, 0.5, -0.0], dtype)
    for x in (small, small / 4, large, ends, ends[2:3]):
        assert np.array_equal(tn.from_numpy(x).long().numpy(), np.trunc(x).astype("int64"))
    least = np.iinfo("int64").min
    odd = tn.tensor([np.nan, np.inf, -np.inf, 1e30, 3.0], dtype=getattr(tn, dtype))
    assert odd.long().tolist() == [least, least, least, least, 3]


def test_bools_are_compared_with_numbers() -> None:
    mask = np.random.default_rng(6).integers(0, 2, 10_000).astype(bool)
    t = tn.from_numpy(mask)
    compare = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal,
    }  # fmt: skip
    for number in (0, 1, 2, 255, 256, -1, 2**40, 0.5, True):
        for name, oracle in compare.items():
            got = getattr(tn, name)(t, number)
            assert got.dtype == tn.bool
            assert np.array_equal(got.numpy(), oracle(mask, number)), (name, number)
    assert np.array_equal((1 == t).numpy(), mask) and (t + 1).dtype == tn.int64


def test_bools_are_compared_with_numbers_as_bytes() -> None:
    """The most that a process had in memory: a copy as int64 would take eight times as much."""
    script = """
import tenon as tn
def most():
    line = next(x for x in open("/proc/self/status") if x.startswith("VmHWM"))
    return int(line.split()[1]) << 10
mask = tn.zeros(1 << 25, dtype=tn.bool)
mask[5] = True
before = most()
assert (mask == 1).any()
print(most() - before)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 4 << 25
