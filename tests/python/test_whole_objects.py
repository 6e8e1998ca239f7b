"""Checkpoints with objects of importable classes: who may read them, and that PyTorch does."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.serialization import UnsafeContentError


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Trap:
    ran = False

    def __reduce__(self):
        return _spring, ()


def _spring() -> str:
    Trap.ran = True
    return "sprung"


def net() -> nn.Module:
    tn.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.LayerNorm(4)
    )


def saved(value: object) -> io.BytesIO:
    file = io.BytesIO()
    tn.save(value, file)
    file.seek(0)
    return file


@pytest.fixture(autouse=True)
def nothing_is_named():
    tn.serialization.clear_safe_globals()
    yield
    tn.serialization.clear_safe_globals()


def test_a_module_comes_back_only_where_the_program_says_so() -> None:
    model, x = net().eval(), tn.ones(2, 3)
    for options in ({}, {"weights_only": True}, {"weights_only": None}):
        with pytest.raises(UnsafeContentError, match="weights_only=False"):
            tn.load(saved(model), **options)
    twin = tn.load(saved(model), weights_only=False)
    assert type(twin) is nn.Sequential and twin(x).equal(model(x)) and not twin.training
    twin.train()(x).sum().backward()
    assert twin[0].weight.grad is not None and type(twin[0].weight) is nn.Parameter


def test_what_surrounds_the_object_comes_back() -> None:
    base = tn.arange(6.0).view(2, 3)
    value = {
        "p": Point(3), "t": base.t(), "view": base[1], "kind": tn.float16, "size": tn.Size([2, 3]),
        "where": tn.device("cpu"),
    }  # fmt: skip
    got = tn.load(saved(value), weights_only=False)
    assert got["p"].x == 3 and got["t"].stride() == (1, 3) and got["t"].equal(base.t())
    got["view"][0] = 9
    assert got["t"][0, 1] == 9  # they share memory, as before
    assert got["kind"] is tn.float16 and got["size"] == (2, 3) and got["where"] == value["where"]


def test_named_classes_and_no_others() -> None:
    with pytest.raises(UnsafeContentError):
        tn.load(saved(Point(3)))
    tn.serialization.add_safe_globals([Point])
    assert tn.serialization.get_safe_globals() == [Point]
    assert tn.load(saved([Point(3)]))[0].x == 3
    with pytest.raises(UnsafeContentError, match="named by add_safe_globals"):
        tn.load(saved([Point(3), Trap()]))
    assert not Trap.ran
    tn.serialization.clear_safe_globals()
    with tn.serialization.safe_globals([(Point, f"{Point.__module__}.Point")]):
        assert tn.load(saved(Point(4))).x == 4
    with pytest.raises(UnsafeContentError):
        tn.load(saved(Point(3)))
    assert tn.load(saved(Trap()), weights_only=False) == "sprung"


@pytest.mark.parametrize("old", [False, True])
def test_files_tell_what_they_name_without_running_it(
    old: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trap, "ran", False)
    path = tmp_path / "x.pt"
    tn.save([Point(3), Trap(), tn.ones(2)], path, _use_new_zipfile_serialization=not old)
    named = tn.serialization.get_unsafe_globals_in_checkpoint(path)
    assert f"{__name__}.Point" in named and not Trap.ran
    assert not any("rebuild_tensor" in name for name in named)
    with tn.serialization.safe_globals([Point]):
        rest = tn.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(path.read_bytes()))
    assert rest == [name for name in named if not name.endswith(".Point")]


def test_files_without_objects_are_never_given_to_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenon._tensor import pickled

    monkeypatch.setattr(pickled, "read", lambda *a, **k: pytest.fail("pickle was asked"))
    assert tn.load(saved({"a": tn.ones(2)}), weights_only=False)["a"].sum() == 2


def test_pytorch_reads_and_writes_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="no PyTorch to read with")
    model = net().eval()
    path = tmp_path / "model.pt"
    tn.save(model, path)
    with zipfile.ZipFile(path) as archive:
        assert b"tenon" not in archive.read("archive/data.pkl")
    theirs = torch.load(path, weights_only=False)
    assert type(theirs) is torch.nn.Sequential
    want = model(tn.ones(2, 3)).tolist()
    assert tn.allclose(tn.tensor(theirs(torch.ones(2, 3)).tolist()), tn.tensor(want), atol=1e-6)
    torch.save(theirs, path)
    again = tn.load(path, weights_only=False)
    assert tn.allclose(again(tn.ones(2, 3)), model(tn.ones(2, 3)), atol=1e-6)


def test_records_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tn.save({"a": tn.arange(3, dtype=tn.uint8)}, path)
    reader = tn.PyTorchFileReader(str(path))
    assert reader.has_record("data.pkl") and "data/0" in reader.get_all_records()
    assert reader.get_record("data/0") == b"\0\1\2"
    with pytest.raises(tn.serialization.FileFormatError, match="no record 'b'"):
        reader.get_record("b")


class Pipe:
    """What can be read and not sought, with what a file has beside."""

    def __init__(self, content: bytes, sought: bool) -> None:
        self.inner, self.sought = io.BytesIO(content), sought

    def read(self, n: int = -1) -> bytes:
        return self.inner.read(n)

    def seekable(self) -> bool:
        return self.sought

    def tell(self) -> int:
        raise OSError("a pipe has no positions")


@pytest.mark.parametrize("old", [False, True])
def test_files_that_are_read_once(old: bool) -> None:
    """What cannot be sought, or read into memory of one's own, is read whole; a checkpoint behind
    another one in an old file is found where the file stands."""
    file = io.BytesIO()
    tn.save({"a": tn.arange(3)}, file, _use_new_zipfile_serialization=not old)
    first = file.tell()
    for sought in (False, True):
        got = tn.load(Pipe(file.getvalue(), sought))  # type: ignore[arg-type]
        assert got["a"].tolist() == [0, 1, 2]
    if old:
        tn.save({"b": tn.ones(1)}, file, _use_new_zipfile_serialization=False)
        file.seek(first)
        assert tn.load(file)["b"].tolist() == [1.0]
    assert tn.serialization.get_unsafe_globals_in_checkpoint(Pipe(file.getvalue(), False)) == []
