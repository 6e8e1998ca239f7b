"""Tests of the plugin, wherever it is installed: pytest test_posit16.py"""

import tenon as tn


def test_every_code_there_and_back() -> None:
    codes = tn.arange(65536).to(tn.int16)
    assert tn.equal(codes.view(tn.posit16).float().to(tn.posit16).view(tn.int16), codes)


def test_values() -> None:
    codes = {1.0: 0x4000, -1.0: -0x4000, 2.0: 0x5000, 0.5: 0x3000, 0.0: 0}
    x = tn.tensor(list(codes), dtype=tn.posit16)
    assert x.view(tn.int16).tolist() == list(codes.values())


def test_operators() -> None:
    x = tn.tensor([1.0, 2.0, 4.0], dtype=tn.posit16)
    y = (x * x + 1).sqrt()
    assert y.dtype == tn.posit16
    assert tn.allclose(y.float(), tn.tensor([2.0, 5.0, 17.0]).sqrt(), rtol=1e-3)
    assert (x @ x).item() == 21.0
