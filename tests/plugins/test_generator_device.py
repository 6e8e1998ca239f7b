"""Random numbers by a method of the device's own: plugins/sim draws uniform_ from splitmix64, which
is computed again here, and what runs on the CPU draws from the Philox half of a generator."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


OWN = """
import pytest
MASK = (1 << 64) - 1
def own(seed, n, first=0):
    numbers = []
    for i in range(first, first + n):
        z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        numbers.append(((z ^ z >> 31) >> 40) / 2**24)
    return numbers
def philox(seed, n):
    return tn.randn(n, generator=tn.Generator().manual_seed(seed)).tolist()
"""


def test_kernels_draw_from_the_devices_generator(folder: Path) -> None:
    text = """
g = tn.Generator(device="sim:1").manual_seed(5)
assert str(g.device) == "sim:1" and g.initial_seed() == 5
x = tn.empty(3, 4, device="sim:1").uniform_(generator=g)
y = tn.rand(5, device="sim:1", generator=g)
assert x.flatten().tolist() == own(5, 12) and y.tolist() == own(5, 5, 12)
again = tn.Generator(device="sim").manual_seed((1 << 64) - 1)
assert tn.rand(3, device="sim", generator=again).tolist() == own((1 << 64) - 1, 3)
"""
    script(folder, OWN + text, GENERATOR=1, DELAY=1000)


def test_default_generators(folder: Path) -> None:
    text = """
tn.manual_seed(11)
assert tn.rand(4, device="sim").tolist() == own(11, 4)
assert tn.rand(4, device="sim").tolist() == own(11, 4, 4)
assert tn.rand(4, device="sim:1").tolist() == own(11, 4)
tn.manual_seed(12)
assert tn.rand(2, device="sim").tolist() == own(12, 2)
cpu = tn.get_rng_state()
tn.sim.manual_seed(3)
assert tn.sim.initial_seed() == 3 and tn.equal(tn.get_rng_state(), cpu)
assert tn.rand(2, device="sim").tolist() == own(3, 2)
assert tn.rand(2, device="sim:1").tolist() == own(12, 2)
tn.sim.manual_seed_all(4)
assert tn.rand(2, device="sim:1").tolist() == own(4, 2)
state = tn.sim.get_rng_state(1)
first = tn.rand(3, device="sim:1").tolist()
tn.sim.set_rng_state(state, 1)
assert first == tn.rand(3, device="sim:1").tolist() == own(4, 3, 2)
"""
    script(folder, OWN + text, GENERATOR=1)


def test_what_runs_on_the_cpu_draws_from_the_philox_half(folder: Path) -> None:
    """normal_ has no kernel there. Both halves go on by themselves."""
    text = """
tn.sim.manual_seed(9)
x = tn.randn(6, device="sim")
assert x.tolist() == philox(9, 6)
assert tn.rand(3, device="sim").tolist() == own(9, 3)
g = tn.Generator(device="sim").manual_seed(21)
assert tn.rand(2, device="sim", generator=g).tolist() == own(21, 2)
assert tn.randn(6, device="sim", generator=g).tolist() == philox(21, 6)
assert tn.rand(2, device="sim", generator=g).tolist() == own(21, 2, 2)
with pytest.raises(RuntimeError, match="Expected a 'cpu' device type .* found 'sim'"):
    tn.rand(2, generator=g)
with pytest.raises(RuntimeError, match="Expected a 'sim' device type .* found 'cpu'"):
    tn.rand(2, device="sim", generator=tn.Generator())
"""
    script(folder, OWN + text, GENERATOR=1)


def test_state(folder: Path) -> None:
    """16 bytes of Philox, then the device's 16."""
    text = """
g = tn.Generator(device="sim").manual_seed(7)
def draw():
    u, n = (f(5, device="sim", generator=g).tolist() for f in (tn.rand, tn.randn))
    return u + n
draw()
state = g.get_state()
assert state.dtype == tn.uint8 and state.shape == (32,)
want = draw()
g.set_state(state)
assert draw() == want != draw()
other = tn.Generator(device="sim:1")
other.set_state(state)
assert other.initial_seed() == 7
assert tn.rand(5, device="sim:1", generator=other).tolist() == want[:5]
with pytest.raises(RuntimeError, match="size 32 .the device's own is in force. .* to be 16"):
    g.set_state(tn.Generator().get_state())
with pytest.raises(RuntimeError, match="size 16 .* to be 32"):
    tn.Generator().set_state(state)
with pytest.raises(RuntimeError, match="no index 2"):
    tn.Generator(device="sim:2")
"""
    script(folder, OWN + text, GENERATOR=1)


@pytest.mark.parametrize("switches", [{}, {"GENERATOR": 1, "WITHOUT": "generator"}, {"LEVEL": 0}])
def test_without_it_numbers_are_those_of_the_cpu(folder: Path, switches: dict) -> None:
    text = """
tn.manual_seed(3)
want = tn.rand(7).tolist(), tn.randn(7).tolist()
tn.manual_seed(3)
assert (tn.rand(7, device="sim").tolist(), tn.randn(7, device="sim").tolist()) == want
g = tn.Generator(device="sim").manual_seed(8)
assert g.get_state().shape == (16,)
assert tn.randn(4, device="sim", generator=g).tolist() == philox(8, 4)
"""
    script(folder, OWN + text, **switches)


def test_graphs_give_numbers_back(folder: Path) -> None:
    """Recording draws numbers, which the first replay draws again."""
    text = """
tn.sim.manual_seed(2)
x = tn.zeros(4, device="sim")
g = tn.Graph()
with tn.graph(g, device="sim"):
    x.uniform_()
g.replay()
assert x.tolist() == own(2, 4)
g.replay()
assert x.tolist() == own(2, 4, 4)
"""
    script(folder, OWN + text, GENERATOR=1, WITHOUT="graph")


def test_retired_devices(folder: Path) -> None:
    """Generators outlive their device, and work again when it is back."""
    text = """
g = tn.Generator(device="sim").manual_seed(6)
assert tn.rand(2, device="sim", generator=g).tolist() == own(6, 2)
gone = tn.Generator(device="sim").manual_seed(6)
tn.rand(2, device="sim", generator=gone)
tn.retire_plugin("sim")
del gone
with pytest.raises(RuntimeError):
    tn.rand(2, device="sim", generator=g)
tn.load_plugin(library)
g.manual_seed(6)
assert tn.rand(2, device="sim", generator=g).tolist() == own(6, 2)
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + OWN + text, GENERATOR=1)


def test_threads(folder: Path) -> None:
    """Every number is drawn once."""
    text = """
import threading
g = tn.Generator(device="sim").manual_seed(1)
parts = []
def work():
    for _ in range(40):
        parts.append(tn.rand(5, device="sim", generator=g))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert sorted(x for part in parts for x in part.tolist()) == sorted(own(1, 800))
"""
    script(folder, OWN + text, GENERATOR=1, DELAY=20)
