"""Plugin folders that somebody filled with anything: each file is a line with what is wrong, or is
passed over; nothing waits, takes memory, or ends the process."""

from __future__ import annotations

import json
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from cases import tenon
from tenon._plugin import elf, manifest

GOOD: dict[str, Any] = {
    "manifest": 1, "name": "x", "version": "1", "library": "x.so",
    "abi": {"major": 1, "min_minor": 0}, "devices": ["xdev"], "summary": "s",
}  # fmt: skip
ODD = (None, True, -1, 1.5, "", [], {}, [None], [[]], ["\u202e"], "../../etc/x.so", "/etc/passwd",
       {"major": []}, ["cpu"], ["meta"], ["a:b"], [""], ["cuda"] * 70, 2**70)  # fmt: skip


def fill(folder: Path) -> None:
    def put(name: str | bytes, data: Any) -> None:
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else json.dumps(data).encode())

    text = json.dumps(GOOD).encode()
    os.mkfifo(folder / "fifo.json")
    (folder / "folder.json").mkdir()
    for name, to in (("loop", "loop.json"), ("zero", "/dev/zero"), ("random", "/dev/random"),
                     ("gone", "/nowhere"), ("memory", "/proc/self/mem")):  # fmt: skip
        (folder / f"{name}.json").symlink_to(to)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "socket.json"))
    put("sparse.json", b"")
    os.truncate(folder / "sparse.json", 3 << 30)
    put("mark.json", b"\xef\xbb\xbf" + text)
    put("null.json", text + b"\0")
    put("wide.json", json.dumps(GOOD).encode("utf-16"))
    put("null_in_a_name.json", {**GOOD, "name": "a\0b"})
    put("deep.json", b'{"a":' + b"[" * 30_000)
    put("deep_objects.json", b'{"a":' * 10_000)
    put("long.json", {**GOOD, "name": "n" * 10_000_000})
    put("long_for_a_name.json", {**GOOD, "name": "n" * 60_000})
    put("long_key.json", {**GOOD, "k" * 60_000: 1})
    put("digits.json", text[:-1] + b',"n":' + b"9" * 60_000 + b"}")
    put("exponent.json", text.replace(b'"manifest": 1', b'"manifest": 1e99999999'))
    put("twice.json", b'{"manifest":1,"manifest":1}')
    put("empty.json", b"")
    put(b"\xff\xfe.json", b"{}")
    put("n" * 250 + ".json", b"{}")
    for key in (*GOOD, "ops", "dtypes", "layers", "requires"):
        for i, odd in enumerate(ODD):
            put(f"odd_{key}_{i}.json", {**GOOD, "name": f"{key}{i}", key: odd})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h")
    fill(folder)
    return folder


def test_they_are_listed(hostile: Path) -> None:
    done = tenon("-c", """
import os, resource, tenon as tn
found = tn.plugins()
assert len(found) > 200 and all(isinstance(p["path"], str) for p in found)
assert any(os.path.exists(p["path"]) and "\\udcff" in p["path"] for p in found)
assert max(len(repr(p)) for p in found) < 100_000
for name in ("xdev", "cuda", "\\u202e", "a:b", ""):
    try:
        tn.ones(2, device=name)
    except RuntimeError as err:
        assert 0 < len(str(err)) < 4000
    else:
        raise AssertionError(name)
assert tn.ones(2).sum() == 2
""", TENON_PLUGIN_PATH=hostile)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_doctor(hostile: Path, encoding: str) -> None:
    done = tenon("-m", "tenon", "doctor", TENON_PLUGIN_PATH=hostile, PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "Tenon is well" in done.stdout


def test_a_library_whose_path_is_no_text(tmp_path: Path) -> None:
    """An audit hook is told of it all the same."""
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/x.so", "wb") as file:
        file.write(b"\x7fELF")
    with pytest.raises(ImportError, match="x.so"):
        tn.load_plugin(os.fsdecode(folder + b"/x.so"))


def test_check_reads_no_further(hostile: Path) -> None:
    """The reader for those who write manifests refuses what the core's does."""
    for path in sorted(hostile.glob("*.json")):
        if path.is_dir() or path.name.startswith(("odd_", "long_key", "digits", "long_for")):
            continue
        with pytest.raises((ValueError, OSError)):
            manifest.read(path)
    os.mkfifo(hostile / "pipe.so")
    for text in (hostile / "pipe.so", "/dev/zero", hostile / "fifo.json", hostile / "zero.json"):
        done = tenon("-m", "tenon", "plugin", "check", str(text), TENON_PROBE=2)
        assert done.returncode == 1 and "no regular file" in done.stdout, done.stdout + done.stderr


def test_damaged_libraries() -> None:
    whole = (Path(tn.__file__).parent / "_C.abi3.so").read_bytes()
    table = int.from_bytes(whole[40:48], "little")
    rng = random.Random(4)
    for _ in range(300):
        data = bytearray(whole[:64] + whole[table:])  # short, and with sections all over the place
        data[40:48] = (64).to_bytes(8, "little")
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data) - 8)
            data[at : at + 8] = rng.choice((0, 1, 2**31, 2**63 - 1, 2**64 - 1)).to_bytes(
                8, "little"
            )
        try:
            elf.parse(bytes(data))
        except ValueError:
            pass
