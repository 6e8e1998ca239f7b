"""The lint's rule about statuses that nobody looks at, on files of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = """
typedef struct table { tn_status (*run)(void *); void (*drop)(void *); } table;
tn_status far_away(int x);
void drop(int x);
"""


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    spec = importlib.util.spec_from_file_location("statuses", ROOT / "tests/lint/statuses.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("statement", "found"), [
    ("far_away(1);", ["far_away"]),
    ("if (x) far_away((1 + 2) * 3); else far_away(2);", ["far_away", "far_away"]),
    ("near(1);", ["near"]),
    ("t->run(NULL);", ["run"]),
    ("tn_add(a, b, 1, &r);", ["tn_add"]),
    ("tn_status st = far_away(1); if (st == TN_OK) st = near(2);", []),
    ("return far_away(1);", []),
    ("(void)far_away(1);", []),
    ("TN_TRY(far_away(1));", []),
    ("drop(1); t->drop(NULL); silent(2);", []),
    ('call->host->fail(TN_E_VALUE, 0, "far_away(1);");', []),
])  # fmt: skip
def test_a_status_has_a_reader(
    rule: ModuleType, tmp_path: Path, statement: str, found: list[str]
) -> None:
    header, source = tmp_path / "table.h", tmp_path / "case.c"
    header.write_text(HEADER)
    source.write_text(
        "static tn_status near(int x) { return x; }\nstatic void silent(int x) { (void)x; }\n"
        f"tn_status f(table *t) {{\n{statement}\n}}\n"
    )
    said = list(rule.thrown_away([header, source], {"tn_add"}))
    assert [name for *_, name in said] == found
    assert all(line == 4 and path == source for path, line, _ in said)


@pytest.mark.parametrize(("statement", "found"), [
    ("st = tn_pad(scope_unsqueeze(s, x, 0), TN_INTS(by, by), mode, &r);", ["tn_pad"]),
    ("st = tn_gather(x, f(a, (b)),\n scope_narrow(&s, y, 0, 1, 2), &r);", ["tn_gather"]),
    ("y = scope_binary(&s, tn_ge, scope_neg(&s, x), z);", []),
    ("r = SCOPE(s, tn_pad(x, TN_INTS(by, by), mode, scope_slot(s)));", []),
    ("r = SCOPE(s, tn_full(size, scope_item(s, x), scope_slot(s)));", []),
    ("st = tn_pad(x, by, &r); y = scope_take(s, st, r);", []),
    ("return tn_ffi_declare(scope_of(self), text);", []),
])  # fmt: skip
def test_no_call_goes_on_with_a_failed_step(
    rule: ModuleType, tmp_path: Path, statement: str, found: list[str]
) -> None:
    source = tmp_path / "case.c"
    source.write_text(f"void f(void) {{\n{statement}\n}}\n")
    said = list(rule.gone_on([source]))
    assert [name for *_, name in said] == found
    assert all(line == 2 and path == source for path, line, _ in said)
