"""What backends/families.py reads at the heads of kernel files, and what it and check_rows.py here
refuse by name while a backend is built."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FAMILIES = HERE.parents[1] / "backends" / "families.py"
ISAS = ("advanced", "baseline")
ROWS = "const acme_rows {} = ROWS_OF(rows);\n"
FILES = {
    "plugin.c": "/* plugin.c: the entry. */\n",
    "ops/join.c": "/* join.c: copies.\n *\n * family: join */\n" + ROWS.format("acme_join_rows"),
    "ops/map.c": "/* map.c: loops.\n *\n"
    " * family: map; types: float b8; isa: each; small: f16; fused */\n"
    + ROWS.format("TN_(acme_map_rows)"),
    "host/half.c": "/* half.c: no rows.\n *\n * isa: each */\n",
}


def run(script: Path, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, script, *args]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "acme" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "acme"


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_heads_become_lists(folder: Path) -> None:
    done = run(FAMILIES, "lists", folder, *ISAS)
    lines = done.stdout.splitlines()
    assert "unit;acme;-1;;;ops/join.c,plugin.c" in lines
    assert "unit;acme_baseline_least;-1;baseline;least;host/half.c" in lines
    assert "unit;acme_f32_advanced_fused;8;advanced;fused;ops/map.c" in lines
    assert "unit;acme_b8_baseline_fused;0;baseline;fused;ops/map.c" in lines
    assert "unit;acme_f16_advanced_fused_small;6;advanced;fused,small;ops/map.c" in lines
    # what a machine runs only without a better set is small, unless it is all that there is
    assert "unit;acme_f32_baseline_fused_least;8;baseline;fused,least;ops/map.c" in lines
    alone = run(FAMILIES, "lists", folder, "baseline").stdout
    assert "unit;acme_f32_baseline_fused;8;baseline;fused;ops/map.c" in alone
    assert "least" not in alone
    # rare element types are compiled once, whatever there are of instruction sets
    assert len([s for s in lines if "ops/map.c" in s]) == 2 * 4 + 1
    assert not any("b8_advanced" in s for s in lines)


def test_rows_are_registered_by_set(folder: Path, tmp_path: Path) -> None:
    digest = run(FAMILIES, "lists", folder, *ISAS).stdout.split("digest;")[1].strip()
    out = tmp_path / "list.h"
    done = run(FAMILIES, "rows", folder, *ISAS, "--out", out, "--digest", digest)
    assert done.returncode == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert text.count("X(") == 1 + 1 + 2 * 4  # join; map, rarely for bool
    assert "X(acme_join_rows, ANY)" in text and "X(acme_map_rows_b8_baseline, ANY)" in text
    assert "X(acme_map_rows_f64_advanced, ADVANCED)" in text
    edit(folder, "ops/map.c", "float b8", "float")
    done = run(FAMILIES, "rows", folder, *ISAS, "--out", out, "--digest", digest)
    assert done.returncode == 1 and "changed after the build was configured" in done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("ops/join.c", "family: join", "family: joint", "promises the rows acme_joint_rows"),
        ("ops/join.c", " *\n * family: join", "", "promises the rows none, it has acme_join_rows"),
        ("ops/join.c", "family: join", "family: join; types: int", "TN_(acme_join_rows)"),
        ("ops/join.c", "family: join", "family: join; kinds: int", "`kinds: int` is none of"),
        ("ops/join.c", "family: join", "family: join; isa: some", "`isa: some` is none of"),
        ("ops/map.c", "float b8", "flaot", "`types: flaot`"),
        ("ops/map.c", "fused */", "fused\n * As ever. */", "the last of the first comment"),
        ("plugin.c", "entry. */", "entry.\n *\n * family: join */", "has none"),
    ],
)
def test_a_wrong_head_is_named(folder: Path, name: str, old: str, new: str, message: str) -> None:
    edit(folder, name, old, new)
    done = run(FAMILIES, "lists", folder, *ISAS)
    assert done.returncode == 1 and message in done.stderr and name in done.stderr


def test_one_family_in_two_files_is_named(folder: Path) -> None:
    (folder / "ops/twin.c").write_text(FILES["ops/join.c"], encoding="utf-8")
    done = run(FAMILIES, "lists", folder, *ISAS)
    assert done.returncode == 1 and "family join is in two files" in done.stderr
    assert "ops/join.c" in done.stderr and "ops/twin.c" in done.stderr


TABLE = [
    {"name": "sum", "kind": "reduction", "composite": False},
    {"name": "mean", "kind": "structured", "composite": True},
    {"name": "view", "kind": "view", "composite": False},
    {"name": "exp", "kind": "pointwise", "composite": False},
]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("a -1 sum 8 0\nb -1 exp 8 0", ["--complete"], ""),
        ("a 0 sum 8 0\nb 1 sum 8 0\nb -1 exp 8 0", ["--complete"], ""),
        ("a -1 sum 8 0\nb -1 sum 8 1\nb -1 exp 8 0", ["--complete"], ""),
        ("a -1 sum 8 0", [], ""),
        ("a -1 sum 8 0", ["--complete", "--but", "exp"], ""),
        ("a -1 sum 8 0", ["--complete"], "exp: pointwise, and no file has a row for it"),
        (
            "a -1 sum 8 0\nb -1 sum 8 0",
            [],
            "sum for dtype 8, priority 0, is there twice: in a and in b",
        ),
        (
            "b 1 sum 8 0\na -1 sum 8 0",
            [],
            "sum for dtype 8, priority 0, is there twice: in a and in b",
        ),
        ("a 1 sum 8 0\nb 1 sum 8 0", [], "twice: in a and in b"),
    ],
)
def test_rows_are_there_once(tmp_path: Path, rows: str, options: list[str], message: str) -> None:
    listed = tmp_path / "rows.txt"
    listed.write_text(f"{rows}\n", encoding="utf-8")
    table = tmp_path / "ops.json"
    table.write_text(json.dumps(TABLE), encoding="utf-8")
    done = run(HERE / "check_rows.py", listed, table, *options)
    assert done.returncode == (1 if message else 0) and message in done.stderr
