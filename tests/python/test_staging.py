"""How states are copied before they are saved in the background."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import stored
import tenon as tn
from refusals import check_beside, part
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint.staging import (
    AsyncStager,
    BlockingAsyncStager,
    DefaultStager,
    StagingOptions,
)
from tenon.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

PLAIN = StagingOptions(False, False, False, False)


class Inner:
    def __init__(self) -> None:
        self.held = tn.full((1,), 4.0)

    def state_dict(self) -> dict[str, Any]:
        return {"held": self.held}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.held = state_dict["held"]


def state() -> dict[str, Any]:
    deep = {"list": [tn.ones(2), 5], "pair": (tn.zeros(1), 2), "object": Inner()}
    return {"w": tn.arange(3.0), "deep": deep, "step": 7}


def changed(x: dict[str, Any]) -> None:
    x["w"].fill_(-1)
    x["deep"]["list"][0].fill_(-1)
    x["deep"]["pair"][0].fill_(-1)
    x["deep"]["object"].held.fill_(-1)


def read(folder: Path) -> dict[str, Any]:
    deep = {"list": [tn.zeros(2), 0], "pair": (tn.ones(1), 0), "object": {"held": tn.zeros(1)}}
    back = {"w": tn.zeros(3), "deep": deep, "step": 0}
    dcp.load(back, checkpoint_id=folder, no_dist=True)
    return back


def same(x: dict[str, Any]) -> None:
    assert x["w"].tolist() == [0, 1, 2] and x["deep"]["list"][0].tolist() == [1, 1]
    assert x["deep"]["list"][1] == 5 and x["step"] == 7
    assert x["deep"]["pair"][0].item() == 0 and x["deep"]["object"]["held"].item() == 4


@pytest.mark.parametrize("stager", [None, "plain", "thread", "blocking", "kept"])
def test_what_is_saved_is_what_it_was(stager: str | None, tmp_path: Path) -> None:
    made: Any = {
        None: lambda: None,
        "plain": lambda: DefaultStager(PLAIN),
        "thread": lambda: DefaultStager(StagingOptions(False, False, True, False)),
        "blocking": BlockingAsyncStager,
        "kept": lambda: BlockingAsyncStager(cache_staged_state_dict=True),
    }[stager]()
    for turn in range(2):
        x = state()
        found = dcp.async_save(
            x, checkpoint_id=tmp_path / str(turn), async_stager=made, no_dist=True
        )
        changed(x)
        if stager == "thread":
            assert isinstance(found, AsyncSaveResponse)
            same(found.staging_completion.result())
            found = found.upload_completion
        assert isinstance(found, Future)
        found.result()
        same(read(tmp_path / str(turn)))
    if made is not None:
        made.close()


class Told(AsyncStager):
    """Stages other numbers and keeps what it is asked."""

    def __init__(self, waits: bool) -> None:
        self._synchronize_after_execute = waits
        self.calls: list[str] = []

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("stage " + " ".join(sorted(state_dict)))
        return {"w": tn.full((3,), 9.0)}

    def synchronize_staging(self) -> None:
        self.calls.append("synchronize")


class Thing:
    def state_dict(self) -> dict[str, Any]:
        return {"inner": tn.ones(1)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        raise AssertionError


@pytest.mark.parametrize("waits", [False, True])
def test_stagers_of_ones_own(waits: bool, tmp_path: Path) -> None:
    stager = Told(waits)
    given = {"w": tn.zeros(3), "thing": Thing()}
    saved = dcp.async_save(given, checkpoint_id=tmp_path, async_stager=stager, no_dist=True)
    assert isinstance(saved, Future)
    saved.result()
    assert stager.calls == ["stage thing w", *["synchronize"] * waits]
    back = {"w": tn.zeros(3)}
    dcp.load(back, checkpoint_id=tmp_path, no_dist=True)
    assert back["w"].tolist() == [9, 9, 9]


def staged(lib: Any) -> list[Any]:
    """What kinds of stagers do with a state, and with it again."""
    staging = part(lib, "distributed", "checkpoint", "staging")
    seen: list[Any] = []
    for stager in (
        staging.BlockingAsyncStager(),
        staging.DefaultStager(staging.StagingOptions(False, False, False, False)),
    ):  # fmt: skip
        given = {"a": lib.ones(2), "b": {"c": [lib.zeros(1), "text"]}}
        first = stager.stage(given)
        given["a"].add_(1)
        second = stager.stage(given)
        seen.append([
            first["a"].tolist(), second["a"].tolist(), second["b"]["c"][1], given["a"].tolist(),
            stager.should_synchronize_after_execute, first["b"]["c"][0].tolist(),
        ])  # fmt: skip
        stager.close()
    return seen


def test_beside_pytorch() -> None:
    mine = staged(tn)
    # PyTorch's default keeps its memory as well: what it staged first is what it staged last.
    want = stored.of_torch(staged)
    assert mine[0] == want[0] and mine[1][1:] == want[1][1:] and mine[1][0] == [1, 1]


def test_memory_that_is_kept() -> None:
    stager, given = BlockingAsyncStager(cache_staged_state_dict=True), state()
    first = stager.stage(given)
    changed(given)
    given["step"] = 8
    second = stager.stage(given)
    assert second["w"] is first["w"] and second["deep"]["list"][0] is first["deep"]["list"][0]
    assert second["w"].tolist() == [-1, -1, -1] and second["step"] == 8


def test_refused() -> None:
    def default(lib: Any) -> Any:
        return part(lib, "distributed", "checkpoint", "staging").DefaultStager()

    check_beside("Non-blocking copy requires that the current accelerator", default)
    with pytest.raises(NotImplementedError, match="must implement stage method"):
        type("Bare", (AsyncStager,), {})().stage({})
    kept = BlockingAsyncStager(True)
    kept.stage({"a": tn.ones(1)})
    with pytest.raises(RuntimeError, match="of another structure"):
        kept.stage({"b": tn.ones(1)})
