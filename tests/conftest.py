"""For all tests: what is drawn at random is the same in every run, whichever tests are run."""

from __future__ import annotations

import pytest
import stored
import tenon


@pytest.fixture(autouse=True)
def seeded() -> None:
    tenon.manual_seed(0)


def pytest_sessionfinish() -> None:
    if stored.STORING:
        stored.save()
