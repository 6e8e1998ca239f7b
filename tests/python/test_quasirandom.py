"""Sobol's sequence: SciPy has the same direction numbers and does not know ours."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon.quasirandom import SobolEngine


@pytest.mark.parametrize("dimension", [1, 2, 40, 1111])
def test_points_are_those_of_scipy(dimension):
    qmc = pytest.importorskip("scipy.stats").qmc
    expected = qmc.Sobol(dimension, scramble=False, bits=30).random(16)
    drawn = SobolEngine(dimension).draw(16, dtype=tn.float64)
    assert drawn.tolist() == expected.tolist()


def test_every_dimension_has_direction_numbers():
    state = SobolEngine(21201).sobolstate
    # The j-th number is odd at its own scale: its lowest bit is bit 29 - j.
    lowest = state & -state
    assert (lowest == 2 ** tn.arange(29, -1, -1)).all()
    assert len({tuple(row) for row in state[:3000].tolist()}) == 3000


def test_pieces_are_the_sequence():
    whole = SobolEngine(5).draw(32)
    engine = SobolEngine(5)
    parts = [engine.draw(1), engine.draw(6), engine.fast_forward(9).draw(16)]
    assert tn.equal(tn.cat(parts[:2]), whole[:7])
    assert tn.equal(parts[2], whole[16:])
    assert engine.num_generated == 32
    assert tn.equal(SobolEngine(5).fast_forward(4).draw(3), whole[4:7])
    assert tn.equal(engine.reset().draw(3), whole[:3])


def test_scrambled_points_keep_their_balance():
    points = SobolEngine(7, scramble=True, seed=5).draw(64)
    assert tn.equal(points, SobolEngine(7, scramble=True, seed=5).draw(64))
    assert not tn.equal(points, SobolEngine(7, scramble=True, seed=6).draw(64))
    # One point in each of 64 slices of every dimension.
    assert tn.equal((points * 64).long().sort(0).values, tn.arange(64)[:, None].expand(-1, 7))


def test_out_and_dtype():
    out = tn.empty(0)
    drawn = SobolEngine(2).draw(3, out=out)
    assert drawn is out and out.tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25]]
    assert SobolEngine(2).draw(3, dtype=tn.float64).dtype == tn.float64


def test_wrong_uses():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match=r"\[1, 21201\]"):
            SobolEngine(dimension)
    engine = SobolEngine(1)
    engine.draw(3)
    with pytest.raises(ValueError, match="n=3\\+2\\*\\*1=5"):
        engine.draw_base2(1)
    assert engine.draw_base2(0).shape == (1, 1)
    assert repr(SobolEngine(2, scramble=True, seed=1)) == (
        "SobolEngine(dimension=2, scramble=True, seed=1)"
    )
