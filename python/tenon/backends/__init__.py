"""Facts and settings of backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tenon._submodules import on_demand
from tenon.backends import _options, cpu, cuda, cudnn, mha, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp"]


def disable_global_flags() -> None:
    """From now on settings of backends change in a `with` statement only (`cudnn.flags()`)."""
    _options.frozen = True


def flags_frozen() -> bool:
    """Whether settings change in a `with` statement only."""
    return _options.frozen


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A `with` statement in which settings may be assigned."""
    with _options.thawed():
        yield


on_demand(globals())
