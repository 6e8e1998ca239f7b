"""What is made once for all tests: example devices; a Tenon wheel and an environment with nothing
else in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import as_user
import pytest
import simulated


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin folder with the simulated device and the example device, which has one kernel."""
    out = tmp_path_factory.mktemp("devices")
    simulated.build(out)
    source = as_user.EXAMPLES / "device"
    as_user.build(source / "acme.c", source / "tenon_acme.json", out)
    return out


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of the Tenon that is tested."""
    reason = as_user.no_wheel()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("wheelhouse")
    as_user.pack_tenon(folder)
    return folder


@pytest.fixture(scope="session")
def venv(
    wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[as_user.Environment]:
    """An environment with Tenon and pip. Tests remove what they install into it."""
    reason = as_user.no_venv()
    if reason:
        pytest.skip(reason)
    venv = as_user.Environment(tmp_path_factory.mktemp("venv") / "v", wheelhouse)
    before = venv.packages()
    yield venv
    assert venv.packages() == before, "a test left a package behind"
