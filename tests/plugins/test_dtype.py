"""A dtype in one file: plugins/examples/dtype, 16-bit posits, against a decoder written from the
definition in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import as_user
import pytest

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plugins")
    source = as_user.EXAMPLES / "dtype"
    as_user.build(source / "posit16.c", source / "tenon_posit16.json", out)
    return out


def posit(code: int) -> Fraction:
    """The value of a posit<16, 1> that is a number, bit by bit."""
    if code == 0:
        return Fraction(0)
    sign = -1 if code & 0x8000 else 1
    bits = f"{(-code if sign < 0 else code) & 0xFFFF:016b}"[1:]
    run = len(bits) - len(bits.lstrip(bits[0]))
    regime = run - 1 if bits[0] == "1" else -run
    rest = bits[run + 1 :]
    exponent = int(rest[0]) if rest else 0
    fraction = Fraction(int(rest[1:], 2), 1 << len(rest[1:])) if rest[1:] else Fraction(0)
    return sign * (1 + fraction) * Fraction(2) ** (2 * regime + exponent)


VALUES = """
import sys
import tenon as tn
codes = tn.arange(65536).to(tn.int16)
floats = codes.view(tn.posit16).float()
assert tn.equal(floats.to(tn.posit16).view(tn.int16), codes)
print("\\n".join(x.hex() for x in floats.tolist()))
"""


def test_every_code(folder: Path) -> None:
    done = as_user.run(folder, "-c", VALUES)
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split()
    assert len(texts) == 65536
    assert texts[0x8000] == "nan"
    for code, text in enumerate(texts):
        if code != 0x8000:
            assert Fraction(float.fromhex(text)) == posit(code), hex(code)


ROUNDING = """
import tenon as tn
tn.manual_seed(0)
codes = (tn.rand(2000) * 32766).long() + 1
low = codes.to(tn.int16).view(tn.posit16).double()
high = (codes + 1).to(tn.int16).view(tn.posit16).double()
for share in (0.2, 0.8):
    x = (low + (high - low) * share).float()
    back = x.to(tn.posit16).double()
    inside = (codes > 8000) & (codes < 24000)  # where neighbours differ by the fraction alone
    want = low if share < 0.5 else high
    assert tn.equal(back[inside], want[inside])
    assert bool(((back == low) | (back == high)).all())
"""

USE = """
import pickle
import tenon as tn
x = tn.tensor([1.0, -2.5, 3.0, 0.0]).to(tn.posit16)
assert (x * 2 + 1).dtype == tn.posit16 and (x * 2 + 1).tolist() == [3.0, -4.0, 7.0, 1.0]
assert (x + tn.ones(4)).dtype == tn.float32 and (x > 1).tolist() == [False, False, True, False]
assert repr(x) == "tensor([ 1.0000, -2.5000,  3.0000,  0.0000], dtype=tenon.posit16)"
assert x.sum().item() == 1.5 and x.argmax().item() == 2
assert tn.cat([x, x]).dtype == tn.posit16 and tn.cat([x, x]).tolist() == x.tolist() * 2
assert tn.ones(2, 3, dtype=tn.posit16).t().contiguous().tolist() == [[1.0, 1.0]] * 3
assert x[x > 0].tolist() == [1.0, 3.0]
x[1] = 7
assert x.tolist() == [1.0, 7.0, 3.0, 0.0] and x.sort()[0].tolist() == [0.0, 1.0, 3.0, 7.0]
assert tn.equal(pickle.loads(pickle.dumps(x)), x)
w = tn.full((3, 2), 0.5, dtype=tn.posit16, requires_grad=True)
y = tn.ones(4, 3, dtype=tn.posit16) @ w
y.tanh().sum().backward()
want = tn.full((3, 2), 0.5, requires_grad=True)
(tn.ones(4, 3) @ want).tanh().sum().backward()
assert w.grad.dtype == tn.posit16
assert tn.allclose(w.grad.float(), want.grad, rtol=2e-3)
opt = tn.optim.SGD([w], lr=0.5)
opt.step()
assert w.dtype == tn.posit16 and not tn.equal(w.float(), tn.full((3, 2), 0.5))
"""


@pytest.mark.parametrize("script", [ROUNDING, USE])
def test_script(folder: Path, script: str) -> None:
    done = as_user.run(folder, "-c", script)
    assert done.returncode == 0, done.stderr


def test_missing_plugin_is_an_attribute_error(tmp_path: Path) -> None:
    script = "import tenon as tn; assert not hasattr(tn, 'posit16')"
    done = as_user.run(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
