"""Comparisons of tensors for tests, and tensors to test with."""

from tenon._submodules import on_demand
from tenon.testing._comparison import assert_allclose, assert_close
from tenon.testing._creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

on_demand(globals())
