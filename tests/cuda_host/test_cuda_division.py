"""Integer division on the CUDA host harness: values against NumPy, zero divisors."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_quotients_and_remainders_of_integers() -> None:
    harness.script("""
import numpy as np
for name in ("uint8", "int8", "int16", "int32", "int64"):
    info = np.iinfo(name)
    x = np.array([info.min, info.min + 1, 0, 1, 5, 7, info.max - 1, info.max], name)
    y = np.array([info.max, 3, 2, 1, 5, info.min or 9, 7, 1], name)
    a, b = tn.from_numpy(x).to("cuda"), tn.from_numpy(y).to("cuda")
    grid = (a[:, None], b[None, :])
    want = (x[:, None].astype(object), y[None, :].astype(object))
    assert (grid[0] // grid[1]).tolist() == (want[0] // want[1]).tolist(), name
    assert (grid[0] % grid[1]).tolist() == (want[0] % want[1]).tolist(), name
    assert tn.fmod(*grid).tolist() == np.fmod(x[:, None], y[None, :]).tolist(), name
    assert (a // 3).tolist() == (x.astype(object) // 3).tolist()
    assert (7 % b).tolist() == (7 % y.astype(object)).tolist()
    assert tn.div(a, b, rounding_mode="trunc").tolist() == [
        int(p) // int(q) if (p < 0) == (q < 0) else -(-int(p) // int(q)) if p < 0 else
        -(int(p) // -int(q)) for p, q in zip(x, y)]
least = tn.tensor([-(2**31)], dtype=tn.int32, device="cuda")
assert (least // -1).item() == -(2**31) and (least % tn.full_like(least, -1)).item() == 0
for op in ("floor_divide", "remainder", "fmod", "_trunc_divide"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


def test_a_zero_divisor_is_told_and_harms_nothing() -> None:
    harness.script("""
x = tn.arange(1000, device="cuda")
def fails(call):
    try:
        call()
    except RuntimeError as err:
        assert "ZeroDivisionError" in str(err), err
        return str(err)
    raise SystemExit("accepted")
fails(lambda: x // 0)                      # at once
divisors = x.t() - 900
y = x // divisors
assert "floor_divide" in fails(lambda: y.cpu())  # at the next wait
got = y.cpu()
assert got[900].item() == 0 and got[901].item() == 901
fails(lambda: (x % divisors).cpu())
assert (x // 3)[999].item() == 333
""")
