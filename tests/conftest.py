"""For all tests: what is drawn at random is the same in every run, whichever tests are run."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import stored
import tenon

# A shell starts what runs in the background without ears for Ctrl-C, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# NumPy's generators of test files, with what they were at their start.
_generators: dict[int, tuple[np.random.Generator, Any]] = {}


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    tenon.manual_seed(0)
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            start = (value, value.bit_generator.state)
            value.bit_generator.state = _generators.setdefault(id(value), start)[1]


@pytest.fixture
def cleared() -> None:
    """For tests that count files or processes: what earlier tests left to the collector is gone.
    An exception and the frames it came through are a circle, which holds the passes in them."""
    gc.collect()


@pytest.fixture
def torch_stream() -> Iterator[None]:
    """Random numbers are PyTorch's."""
    tenon.set_rng("torch")
    yield
    tenon.set_rng("philox")


def pytest_sessionfinish() -> None:
    if stored.STORING:
        stored.save()
