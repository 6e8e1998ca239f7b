"""Checkpoints of several processes: another number of them reads what some have written; damage and
missing parts are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from ranks import run, start
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from tenon.io.errors import FileFormatError


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "readers"), [(2, 1), (1, 2), (2, 2), (3, 2), (2, 3)])
def test_any_number_of_processes_reads_what_any_has_written(
    writers: int, readers: int, tmp_path: Path
) -> None:
    assert run("gloo", writers, "checkpoints.py", "save", str(tmp_path)).count("ok") == writers
    assert run("gloo", readers, "checkpoints.py", "load", str(tmp_path)).count("ok") == readers


@pytest.mark.slow
def test_a_rank_that_dies_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    job = start("gloo", 2, "checkpoints.py", "kill", str(tmp_path / "c"))
    _, err = job.communicate(timeout=500)
    assert job.returncode != 0 and "killed by SIGKILL" in err
    found = []
    for name in ("c", "c-before"):
        found.append({"model": {"0.weight": tn.zeros(7, 5).double()}})
        dcp.load(found[-1], checkpoint_id=tmp_path / name)
    got, want = (f["model"]["0.weight"].numpy() for f in found)
    np.testing.assert_array_equal(got, want)
    assert np.abs(want).max() > 0


@pytest.mark.slow
def test_an_error_of_one_rank_is_one_of_all(tmp_path: Path) -> None:
    assert run("gloo", 2, "checkpoints.py", "fail", str(tmp_path)).count("ok") == 2


def sample() -> dict:
    return {"a": {"w": tn.arange(6.0).view(2, 3), "n": 4}, "l": [tn.tensor(2), "t"], "e": []}


def test_one_process(tmp_path: Path) -> None:
    told = dcp.save(sample(), checkpoint_id=tmp_path / "c")
    assert list(told.state_dict_metadata["a.w"].size) == [2, 3]
    state = {"a": {"w": tn.zeros(2, 3), "n": 0}, "l": [tn.tensor(0), ""], "e": None}
    kept = state["a"]["w"]
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["a"]["w"] is kept and kept.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["a"]["n"] == 4 and state["l"][0].item() == 2 and state["l"][1] == "t"
    assert state["e"] == []
    dcp_to_torch_save(tmp_path / "c", tmp_path / "one.pt")
    one = tn.load(tmp_path / "one.pt")
    assert one["a"]["w"].tolist() == kept.tolist() and one["l"][1] == "t" and one["a"]["n"] == 4
    torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "d")
    again = {"a": {"w": tn.zeros(2, 3)}}
    dcp.load(again, checkpoint_id=tmp_path / "d")
    assert again["a"]["w"].tolist() == kept.tolist()


def test_what_is_missing_or_does_not_fit_is_named(tmp_path: Path) -> None:
    dcp.save(sample(), checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: x.y"):
        dcp.load({"x": {"y": tn.ones(1)}}, checkpoint_id=tmp_path)
    partial = dcp.DefaultLoadPlanner(allow_partial_load=True)
    state = {"x": {"y": tn.ones(1)}, "a": {"n": 0}}
    dcp.load(state, checkpoint_id=tmp_path, planner=partial)
    assert state["x"]["y"].item() == 1 and state["a"]["n"] == 4
    with pytest.raises(dcp.CheckpointException, match=r"saved \[2, 3\] and current: \[5\] for a.w"):
        dcp.load({"a": {"w": tn.ones(5)}}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="No such file"):
        dcp.load({"a": tn.ones(1)}, checkpoint_id=tmp_path / "none")
    with pytest.raises(RuntimeError, match="overwrite=False"):
        writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
        try:
            dcp.save(sample(), storage_writer=writer)
        except dcp.CheckpointException as err:
            raise err.failures[0] from None
    with pytest.raises(ValueError, match="two entries of the name 'a.b'"):
        dcp.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)

    class Own(dcp.DefaultLoadPlanner):
        pass

    with pytest.raises(NotImplementedError, match="Own: planners of one's own"):
        dcp.load({}, checkpoint_id=tmp_path, planner=Own())


def test_damage_is_named(tmp_path: Path) -> None:
    dcp.save(sample(), checkpoint_id=tmp_path)
    (data,) = tmp_path.glob("*.distcp")
    whole = data.read_bytes()
    boxes = json.loads((tmp_path / ".metadata").read_bytes().partition(b"\n")[2])["entries"]
    (box,) = boxes["a.w"]["boxes"]
    for damaged in (
        whole[: box["offset"]] + b"\x07" + whole[box["offset"] + 1 :],
        whole[: box["offset"] + 3],
        b"",
    ):
        data.write_bytes(damaged)
        with pytest.raises(dcp.CheckpointException, match=f"{data.name}: 'a.w' is damaged"):
            dcp.load({"a": {"w": tn.zeros(2, 3)}}, checkpoint_id=tmp_path)
    data.unlink()
    with pytest.raises(dcp.CheckpointException, match="the file of 'a.w' is missing"):
        dcp.load({"a": {"w": tn.zeros(2, 3)}}, checkpoint_id=tmp_path)
    manifest = tmp_path / ".metadata"
    told = manifest.read_bytes()
    for at in (0, len(told) // 2, len(told) - 1):
        manifest.write_bytes(told[:at] + bytes([told[at] ^ 1]) + told[at + 1 :])
        with pytest.raises(dcp.CheckpointException, match=r"\.metadata: damaged"):
            dcp.load({"a": {"w": tn.zeros(2, 3)}}, checkpoint_id=tmp_path)
    with pytest.raises(FileFormatError):
        dcp.FileSystemReader(tmp_path).read_metadata()


PLANNED = """
import sys
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

folder = sys.argv[1]
dcp.save({"x": torch.arange(3)}, checkpoint_id=folder + "/c", planner=DefaultSavePlanner())
state = {"x": torch.zeros(3, dtype=torch.int64)}
dcp.load(state, checkpoint_id=folder + "/c", planner=DefaultLoadPlanner())
dcp_to_torch_save(folder + "/c", folder + "/one.pt")
print(state["x"].tolist(), torch.load(folder + "/one.pt")["x"].tolist())
"""


def test_planners_by_the_names_of_a_program(tmp_path: Path) -> None:
    """Under `tenon run` classes say that they are torch's."""
    program = tmp_path / "planned.py"
    program.write_text(PLANNED, encoding="utf-8")
    command = [sys.executable, "-m", "tenon", "run", str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stdout == "[0, 1, 2] [0, 1, 2]\n", done.stderr
