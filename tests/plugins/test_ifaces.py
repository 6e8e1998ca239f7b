"""The optional tables of a device: absent, empty, too short, or with a member missing. Whatever is
wrong with a table, core says so, leaves it out, and the device works as if it had none."""

from __future__ import annotations

import json
from pathlib import Path

import abi
import as_user
import pytest

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

HERE = Path(__file__).parent
DEVICE_HEADER = abi.strip_comments((abi.INCLUDE / "tenon/device.h").read_text(encoding="utf-8"))


def read_tables() -> dict[str, tuple[int, list[str]]]:
    """Size and functions of every table, from the measurements of the header."""
    tables: dict[str, tuple[int, list[str]]] = {}
    for line in (as_user.ROOT / "plugins/abi.lock").read_text(encoding="utf-8").splitlines():
        kind, _, said = line.partition(" ")
        name, *rest = said.split() or [""]
        owner, _, member = name.partition(".")
        if not owner.endswith("_iface") or owner not in abi.structs_of(DEVICE_HEADER):
            continue  # the others are tables of the host
        if kind == "struct":
            tables[owner] = (int(rest[0]), [])
        elif kind == "field" and int(rest[0]) >= 8:
            tables[owner][1].append(member)
    return tables


TABLES = read_tables()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    manifest = {"manifest": 1, "name": "tables", "version": "1.0", "library": "tenon_tables.so"}
    manifest |= {"summary": "wrong tables", "abi": {"major": 1, "min_minor": 0}}
    path = out / "made" / "tenon_tables.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**manifest, "devices": ["tables"]}), encoding="utf-8")
    as_user.build(HERE / "tables.c", path, out)
    return out


USE = """
import os, sys, warnings
import tenon as tn
library, table, size, members = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4].split()

def use():
    x = tn.arange(6.0, device="tables").reshape(2, 3)
    stream, event = tn.Stream("tables"), tn.Event("tables")
    with stream:
        y = (x @ x.t() + 1).to("tables:1")
        event.record()
    stream.wait_event(event)
    event.synchronize()
    assert stream.query() and event.query() and stream.stream_id == 0
    assert y.tolist() == [[6.0, 15.0], [15.0, 51.0]]
    tn.manual_seed(3)
    assert tn.rand(4, device="tables").cpu().min() >= 0
    tn.tables.synchronize()

def load(fault):
    if fault is None:
        os.environ.pop("TABLE", None)
    else:
        os.environ.update(TABLE=table, FAULT=fault, TABLE_BYTES=size)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tn.load_plugin(library)
        use()
    tn.retire_plugin("tables")
    return [str(w.message) for w in said if "left out" in str(w.message)]

assert load(None) == []
short = f"its table \\"{table}\\" has %d bytes instead of {size}"
for fault, size_told in (("null", 0), ("short", int(size) - 1)):
    (said,) = load(fault)
    assert said.startswith("device 'tables': " + short % size_told), said
for i, member in enumerate(members):
    (said,) = load(str(i))
    assert said.startswith(f"device 'tables': its table \\"{table}\\" lacks '{member}'"), said
"""


@pytest.mark.parametrize("struct", TABLES)
def test_a_wrong_table_is_no_table(folder: Path, struct: str) -> None:
    size, members = TABLES[struct]
    name = f"tn.{struct[len('tn_') : -len('_iface')]}/1"
    library = str(folder / "tenon_tables.so")
    done = as_user.run(
        folder, "-c", USE, library, name, str(size), " ".join(members), TENON_FALLBACK="allow"
    )
    assert done.returncode == 0, done.stderr
