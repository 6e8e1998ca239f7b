"""H16: exchanges of a training step among simulated machines, the model of their times, and what
docs/distributed.md says of it (tests/bench/scaling)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parent.parent.parent
SCALING = TOP / "tests" / "bench" / "scaling"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCALING))
    return import_module("model")


def asked(*ranks: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, SCALING, "--json", "--ranks", *map(str, ranks)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("smpicc"), reason="SimGrid is not installed")
def test_simulated_steps_take_what_the_model_says() -> None:
    rows = asked(8, 64)["simulated"]
    assert [row["ranks"] for row in rows] == [8, 64]
    for row in rows:
        assert row["simulated_s"] == pytest.approx(row["model_s"], rel=0.02)
    # at 64 the exchanges are what a step waits for, at 8 but the last of them
    assert rows[1]["simulated_s"] > rows[0]["simulated_s"] + 1e-3


def test_the_table_of_the_page_is_the_model() -> None:
    page = (TOP / "docs" / "distributed.md").read_text()
    for way, of in asked()["efficiency"].items():
        row = " | ".join(f"{100 * share:.0f}" for share in of.values())
        assert f"| {way} | {row} |" in page


def played_ring(link: Any, devices: int, size: float) -> float:
    """All-reduce message by message: a device sends on what it has got, 2 (n - 1) times."""
    there = [0.0] * devices
    for _ in range(2 * (devices - 1)):
        there = [t + link.alpha + size / devices / link.bytes_per_second for t in there]
        there = [max(there[i], there[i - 1]) for i in range(devices)]
    return max(there)


@pytest.mark.parametrize("devices", [1, 2, 7, 64])
def test_rings(model: Any, devices: int) -> None:
    link = model.Link(1e-5, 4e10)
    assert model.ring(link, devices, 1e8) == pytest.approx(played_ring(link, devices, 1e8))
    halves = 2 * model.ring_part(link, devices, 1e8)
    assert halves == pytest.approx(played_ring(link, devices, 1e8))


def test_trees_wait_for_the_depth_and_move_the_data_twice(model: Any) -> None:
    assert model.tree(model.Link(1.0, 1e30), 1024, 8.0) == 20
    assert model.tree(model.Link(1.0, 1e30), 1000, 8.0) == 20
    assert model.tree(model.Link(0.0, 4.0), 1024, 8.0) == 4
    assert model.tree(model.Link(1.0, 4.0), 1, 8.0) == 0


def test_two_levels(model: Any) -> None:
    inside, across = model.Link(1.0, 8.0), model.Link(100.0, 1.0)
    cluster = model.Cluster(inside, across, 4)
    alone = model.two_level(cluster, model.ring)(4, 64.0)
    assert alone == model.ring(inside, 4, 64.0) == model.flat_ring(cluster)(4, 64.0)
    # a quarter of the data goes across, between two machines
    assert model.two_level(cluster, model.ring)(8, 64.0) == alone + model.ring(across, 2, 16.0)
    assert model.two_level(cluster, model.tree)(8, 64.0) == alone + model.tree(across, 2, 16.0)
    assert model.flat_ring(cluster)(8, 64.0) == model.ring(across, 8, 64.0)
    assert 2 * model.two_level_part(cluster)(8, 64.0) == alone + model.ring(across, 2, 16.0)


def test_steps(model: Any) -> None:
    work = model.Work((10.0, 30.0), forward=4.0, backward=8.0)
    assert work.ready == [6.0, 12.0]
    free = model.ddp(work, 8, lambda n, size: 0.0)
    assert free == 12.0
    # the first bucket's sum hides behind backward, the second waits for its own alone
    assert model.ddp(work, 8, lambda n, size: size / 10) == 15.0
    # buckets are summed in order: the first holds the second up
    assert model.ddp(work, 8, lambda n, size: 100 / size) == pytest.approx(16 + 100 / 30)
    # FSDP: gathered 3 1 1 3, computed 3 1 2 6, scattered 1 3. Begun at: gathered 0 3 6 7, computed
    # 3 6 7 10, scattered 10 16; waited for, the second layer's backward begins at 11
    assert model.fsdp(work, 8, lambda n, size: size / 10, waits=False) == 19.0
    assert model.fsdp(work, 8, lambda n, size: size / 10, waits=True) == 20.0
