"""Checkpoints of several processes: another number of them reads what some have written; damage and
missing parts are named."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from ranks import run, start
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import _manifest
from tenon.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION
from tenon.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    dcp_to_torch_save,
    torch_save_to_dcp,
)
from tenon.distributed.checkpoint.planner import LoadItemType
from tenon.io.errors import FileFormatError, UnsafeContentError


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


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_planners_and_storage_of_a_program(ranks: int, tmp_path: Path) -> None:
    assert run("gloo", ranks, "checkpoints.py", "own", str(tmp_path)).count("ok") == ranks


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
    with pytest.raises(dcp.CheckpointException, match=r"saved .*2, 3.* and current: .*5.* for a.w"):
        dcp.load({"a": {"w": tn.ones(5)}}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="No such file"):
        dcp.load({"a": tn.ones(1)}, checkpoint_id=tmp_path / "none")
    with pytest.raises(RuntimeError, match="overwrite=False"):
        writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
        try:
            dcp.save(sample(), storage_writer=writer)
        except dcp.CheckpointException as err:
            raise err.failures[0][0] from None
    with pytest.raises(dcp.CheckpointException, match="duplicated flatten key a.b"):
        dcp.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)


def test_failures_say_where_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointException) as caught:
        dcp.load({"x": 1}, checkpoint_id=tmp_path / "none")
    ((error, stack),) = caught.value.failures.values()
    assert isinstance(error, FileNotFoundError) and any(f.name == "read_metadata" for f in stack)
    reader = BroadcastingTorchSaveReader(tmp_path / "one.pt", coordinator_rank=1)
    with pytest.raises(AssertionError, match="Coordinator rank mismatch: expected 1, got 0"):
        reader.set_up_storage_reader(dcp.Metadata({}), True)
    item = dcp.ReadItem(LoadItemType.BYTE_IO, *[dcp.metadata.MetadataIndex("n"), tn.Size([0])] * 2,
                        tn.Size([0]))  # fmt: skip
    with pytest.raises(RuntimeError, match="Non-tensor value identified at n"):
        reader.read_data(dcp.LoadPlan([item]), dcp.DefaultLoadPlanner())


def test_a_writer_keeps_its_name_between_saves(tmp_path: Path) -> None:
    writer = dcp.FileSystemWriter(tmp_path)
    name = writer.storage_meta().save_id
    dcp.save({"x": 1}, storage_writer=writer)
    told = dcp.FileSystemReader(tmp_path).read_metadata()
    assert told.storage_meta.save_id == writer.storage_meta().save_id == name
    assert told.version == CURRENT_DCP_VERSION
    writer.reset()
    assert writer.storage_meta().save_id != name


def test_damage_is_named(tmp_path: Path) -> None:
    dcp.save(sample(), checkpoint_id=tmp_path)
    (data,) = tmp_path.glob("*.distcp")
    whole = data.read_bytes()
    stored = dcp.FileSystemReader(tmp_path).read_metadata().storage_data
    (at,) = (place.offset for index, place in stored.items() if index.fqn == "a.w")
    for damaged in (
        whole[:at] + b"\x07" + whole[at + 1 :],
        whole[: at + 3],
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


# Of PyTorch 2.13 with two processes: "cut" is a DTensor cut by rows, "all" a replicated one.
OF_TORCH = Path(__file__).resolve().parents[1] / "data" / "checkpoint_of_pytorch.tar.xz"


def like_torchs() -> dict:
    half = (tn.arange(6) / 2).bfloat16().view(2, 3)
    return {"cut": tn.arange(15.0).view(5, 3), "all": tn.arange(4), "m": {"w": half, "n": 4},
            "l": [tn.tensor(2), "t"], "e": {}, "c": [1, (2,)]}  # fmt: skip


def test_a_checkpoint_of_pytorch(tmp_path: Path) -> None:
    with tarfile.open(OF_TORCH) as archive:
        archive.extractall(tmp_path / "c", filter="data")
    want = like_torchs()
    state = {"cut": tn.zeros(5, 3), "all": tn.zeros(4).long(), "m": {"n": 0}, "c": None,
             "l": [tn.tensor(0), ""], "e": {}}  # fmt: skip
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["cut"].tolist() == want["cut"].tolist() and state["all"].tolist() == [0, 1, 2, 3]
    assert (state["m"], state["c"], state["l"][1]) == ({"n": 4}, [1, (2,)], "t")
    dcp_to_torch_save(tmp_path / "c", tmp_path / "one.pt")
    one = tn.load(tmp_path / "one.pt")
    assert one["m"]["w"].dtype is tn.bfloat16 and one["m"]["w"].tolist() == want["m"]["w"].tolist()
    assert list(one) == ["cut", "all", "m", "l", "c"] and one["l"][0].item() == 2
    dcp.save(want, checkpoint_id=tmp_path / "c")  # whose files go
    assert sorted(p.name[:6] for p in (tmp_path / "c").iterdir()) == [".metad", "__0_0_"]


class Named:
    """What a manifest has under some name, whoever reads it."""

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state

    def told(self) -> object:
        members = getattr(self, "args", ()), getattr(self, "state", None)
        return type(self).__name__, plain(members)


class Names(pickle.Unpickler):
    """Knows no class of ours or of PyTorch's."""

    def find_class(self, module: str, name: str) -> type:
        assert module.split(".")[0] in ("torch", "pathlib"), module
        made = type(f"{module}.{name}", (Named,), {})
        return made


def plain(value: object) -> object:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Named):
        return value.told()
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_pytorch_reads_what_is_written(tmp_path: Path) -> None:
    """The manifests of both have the same classes and members, whose places and hashes differ."""
    with tarfile.open(OF_TORCH) as archive:
        theirs = archive.extractfile("./.metadata").read()
    dcp.save(like_torchs(), checkpoint_id=tmp_path)
    file = io.BytesIO((tmp_path / ".metadata").read_bytes())
    mine = Names(file).load().state
    assert len(file.read()) == len("tenon.sha256:") + 64  # which pickle does not look at
    want = Names(io.BytesIO(theirs)).load().state
    assert list(mine) == list(want) and mine["version"] == want["version"]
    assert plain(mine["planner_data"]) == plain(want["planner_data"])
    for key, told in want["state_dict_metadata"].items():
        got = getattr(mine["state_dict_metadata"][key], "state", {})
        for member, value in getattr(told, "state", {}).items():
            if member != "chunks":
                assert plain(got[member]) == plain(value), (key, member)
            else:
                assert plain(got[member][0].state["offsets"]) == plain(value[0].state["offsets"])
                assert type(got[member][0]).__name__ == type(value[0]).__name__
    (got, place), (index, there) = (
        next((k, v) for k, v in m["storage_data"].items() if k.state["fqn"] == "cut")
        for m in (mine, want)
    )  # fmt: skip
    assert sorted(plain(got.state)) == sorted(plain(index.state))
    assert type(place).__name__ == type(there).__name__
    assert place.state.keys() == there.state.keys() | {"sha256"}
    data = (tmp_path / place.state["relative_path"]).read_bytes()
    start = place.state["offset"]
    part = tn.load(io.BytesIO(data[start : start + place.state["length"]]))
    assert part.tolist() == like_torchs()["cut"].tolist()


HOSTILE = {
    "code": (b"cos\nsystem\n(X\x02\x00\x00\x00lstR.", "os.system"),
    "no manifest": (pickle.dumps({"a": 1}, 2), "something else than one manifest"),
    "more behind": (b"}.junk", "something else than one manifest"),
    "another member": (
        b"\x80\x02ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}X\x01\x00\x00\x00aK\x01sb.",
        "an entry of the class Metadata that is none",
    ),
    "nothing in it": (
        b"\x80\x02ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b.", "damaged",
    ),
    "half": (b"\x80\x02ctorch.distributed.checkpoint.metadata\nMeta", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_manifests_that_lie(name: str, tmp_path: Path) -> None:
    data, words = HOSTILE[name]
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises((FileFormatError, UnsafeContentError), match=words):
        dcp.FileSystemReader(tmp_path).read_metadata()


def test_places_outside_of_the_folder_are_not_touched(tmp_path: Path) -> None:
    """A manifest that names files elsewhere: none is read, and none is removed."""
    folder, kept = tmp_path / "c", tmp_path / "kept"
    dcp.save({"a": 1}, checkpoint_id=folder)
    kept.write_bytes(b"")
    reader = dcp.FileSystemReader(folder)
    told = reader.read_metadata()
    for place in told.storage_data.values():
        place.relative_path, place.length, place.sha256 = "../kept", 0, None
    (folder / ".metadata").write_bytes(_manifest.written(told))
    with pytest.raises(dcp.CheckpointException, match="the file of 'a' is missing"):
        dcp.load({"a": 0}, checkpoint_id=folder)
    dcp.save({"a": 1}, checkpoint_id=folder)
    assert kept.exists()


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
