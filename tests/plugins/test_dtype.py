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


FILES = """
import io, sys
import tenon as tn
from tenon.io import safetensors
x = tn.tensor([[1.0, -2.5, 3.0], [0.0, 7.0, -0.5]]).to(tn.posit16)
p = tn.nn.Parameter(x.t())
state = {"x": x, "row": x[1], "p": p, "empty": x[:0], "scalar": x[0, 1], "plain": tn.ones(2)}
file = io.BytesIO()
tn.save(state, file)
file.seek(0)
back = tn.load(file)
assert back.keys() == state.keys() and isinstance(back["p"], tn.nn.Parameter)
assert back["p"].requires_grad and not back["x"].requires_grad
data = safetensors.save({k: v.detach() for k, v in state.items()}, {"made by": "a test"})
again = safetensors.load(data)
for name, t in state.items():
    for other in (back[name], again[name]):
        assert other.dtype == t.dtype and other.shape == t.shape and tn.equal(other, t.detach())
net = tn.nn.Linear(2, 2).to(tn.posit16)
tn.save(net.state_dict(), sys.argv[1] + "/net.pt")
fresh = tn.nn.Linear(2, 2).to(tn.posit16)
fresh.load_state_dict(tn.load(sys.argv[1] + "/net.pt"))
assert tn.equal(fresh.weight.detach(), net.weight.detach())
safetensors.save_file({"x": x}, sys.argv[1] + "/x.safetensors")
assert tn.posit16.plugin == "posit16" and tn.float32.plugin is None
try:
    tn.save({"d": tn.posit16}, file)
except TypeError as err:
    assert "a dtype of a plugin" in str(err)
else:
    raise AssertionError
y = tn.from_dlpack(x)
assert y.dtype == tn.posit16 and y.data_ptr() == x.data_ptr() and tn.equal(y, x)
y[0, 0] = 2
assert x[0, 0].item() == 2
"""

MISSING = """
import sys
import tenon as tn
from tenon.io import safetensors
for read, name in ((tn.load, "net.pt"), (safetensors.load_file, "x.safetensors")):
    try:
        read(sys.argv[1] + "/" + name)
    except tn.io.errors.FileFormatError as err:
        assert "dtype 'posit16'" in str(err) and "install the plugin 'posit16'" in str(err)
    else:
        raise AssertionError
"""


def test_files_and_dlpack(folder: Path, tmp_path: Path) -> None:
    """Saved, loaded, loaded where the plugin is missing, and lent to others as opaque elements."""
    done = as_user.run(folder, "-c", FILES, str(tmp_path))
    assert done.returncode == 0, done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = as_user.run(empty, "-c", MISSING, str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", [ROUNDING, USE])
def test_script(folder: Path, script: str) -> None:
    done = as_user.run(folder, "-c", script)
    assert done.returncode == 0, done.stderr


def test_missing_plugin_is_an_attribute_error(tmp_path: Path) -> None:
    script = "import tenon as tn; assert not hasattr(tn, 'posit16')"
    done = as_user.run(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
