"""The plugin ABI is what plugins/abi.lock says, and accidental changes of it are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import abi
import pytest


@pytest.fixture(scope="module")
def measured() -> list[str]:
    return abi.measure()


def changed(tmp_path: Path, header: str, old: str, new: str) -> list[str]:
    """The lock's lines after one edit of a header."""
    include = tmp_path / "include"
    shutil.copytree(abi.INCLUDE, include)
    path = include / "tenon" / header
    text = path.read_text()
    assert old in text, f"'{old}' is no longer in {header}"
    path.write_text(text.replace(old, new, 1))
    return abi.measure(include)


def test_matches_lock(measured: list[str]) -> None:
    locked = abi.facts(abi.LOCK.read_text().splitlines())
    assert measured == locked, "a deliberate change? tests/plugins/abi.py --update --because WHY"


def test_the_lock_breaks_nothing(measured: list[str]) -> None:
    """With the reasons that it keeps, which are no facts."""
    lock = abi.LOCK.read_text().splitlines()
    assert "draft" not in lock and any(line.startswith("because ") for line in lock)
    assert abi.breaks(lock, measured) == []


def test_no_padding(measured: list[str]) -> None:
    assert abi.gaps(measured) == []


def test_prefix_is_one_cache_line(measured: list[str]) -> None:
    assert "struct tn_view 64" in measured
    assert any(line.startswith("field tn_view.data 16 8 ") for line in measured)


BREAKS = {
    "type of a field": ("plugin.h", "int32_t ndim;", "uint32_t ndim;"),
    "order of fields": (
        "plugin.h",
        "void (*retire)(void);",
        "void *x; void (*retire)(void);",
    ),
    "value of a constant": ("plugin.h", "#define TN_DEVICE_SLOTS 32", "#define TN_DEVICE_SLOTS 33"),
    "signature of a function": ("plugin.h", "(*poll)(void);", "(*poll)(int32_t x);"),
    "status code": ("status.h", "X(E_INDEX, 3,", "X(E_INDEX, 33,"),
    "dtype slot": ("dtype.h", 'X(U8, 1, "uint8", 1, 1,', 'X(U8, 1, "uint8", 1, 0,'),
    "removed constant": ("plugin.h", "#define TN_PLAN_FLAT 0x1u", "#define TN_PLAN_ROW 0x1u"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_break_is_found(what: str, measured: list[str], tmp_path: Path) -> None:
    after = changed(tmp_path, *BREAKS[what])
    assert abi.breaks(measured, after), f"a changed {what} went unnoticed"


def test_every_struct_is_locked(measured: list[str], tmp_path: Path) -> None:
    """A member in front of the others is found in each struct of each header."""
    include = tmp_path / "include"
    shutil.copytree(abi.INCLUDE, include)
    opening = re.compile(r"^((?:typedef )?struct (\w+) \{)$", re.M)
    names = []
    for header in abi.HEADERS:
        path = include / "tenon" / header
        text = path.read_text()
        names += [m[2] for m in opening.finditer(text)]
        path.write_text(opening.sub(r"\1 void *fresh;", text))
    assert sorted([*abi.HEADERS, *abi.OTHER_DOORS]) == sorted(
        p.name for p in abi.INCLUDE.rglob("*.h")
    )
    faults = abi.breaks(measured, abi.measure(include))
    missed = [n for n in names if not any(f": field {n}." in fault for fault in faults)]
    assert "tn_stream_iface" in names and not missed


@pytest.mark.parametrize("standard", ["c11", "c17", "c++11", "c++17"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_headers_alone(compiler: str, standard: str, tmp_path: Path) -> None:
    """Each header compiles with nothing before it and without a warning."""
    language = "c++" if "++" in standard else "c"
    if language == "c++":
        compiler = {"gcc": "g++", "clang": "clang++"}[compiler]
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
    for header in (*abi.HEADERS, *abi.OTHER_DOORS):
        source = tmp_path / "alone"
        source.write_text(f"#include <tenon/{header}>\ntypedef int declared;\n")
        command = [compiler, f"-std={standard}", *flags, f"-I{abi.INCLUDE}", "-fsyntax-only"]
        done = subprocess.run(
            [*command, "-x", language, str(source)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_growth_needs_a_minor(measured: list[str], tmp_path: Path) -> None:
    middle = "const void *(*query)(void *ctx, const char *iface);"
    grown = changed(tmp_path / "a", "plugin.h", middle, "void *fresh; " + middle)
    assert any("changed or removed" in fault for fault in abi.breaks(measured, grown))
    last = "tn_status (*register_layer)(tn_txn *txn, const tn_layer_desc *desc);"
    grown = changed(tmp_path / "b", "plugin.h", last, last + " void *fresh;")
    assert abi.breaks(measured, grown) == [
        f"added without a new TN_ABI_MINOR: {line}" for line in grown if ".fresh " in line
    ]
    major, minor = abi.version(measured)
    grown[0] = f"abi {major}.{minor + 1}"
    raised = [line.replace(f"_MINOR {minor}", f"_MINOR {minor + 1}") for line in grown]
    assert raised != grown and abi.breaks(measured, raised) == []


def test_padding_is_found(tmp_path: Path) -> None:
    lines = changed(tmp_path, "plugin.h", "    uint16_t dl_lanes;", "    uint8_t dl_lanes;")
    assert abi.gaps(lines)
