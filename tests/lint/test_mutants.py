"""Mutants of Python: what is changed, and that it is changed where it runs."""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutate"))
import ctext  # noqa: E402
import pycode  # noqa: E402
import runner  # noqa: E402

TEXT = '''from __future__ import annotations

import functools

BASE = 3


def least(a: int, b: int = BASE * 2, *rest: int, most: float = 0.0) -> bool:
    """A text."""
    if a is None:
        raise ValueError(f"{a + 1}")
    return a < b


class Kept:
    @functools.lru_cache
    def get(self, key: str, count: int = 1) -> int:
        return count + 1
'''


def test_what_is_changed() -> None:
    found = [(e.name, e.of_default, e.note) for e in pycode.edits(TEXT)]
    assert found == [
        (pycode.AT_IMPORT, False, "3 -> (3 + 1) (line 0)"),
        ("least", True, "BASE * 2 -> (BASE / 2) (b)"),
        ("least", True, "0.0 -> 0.01 (most)"),
        ("least", False, "a is None -> (a is not None) (line 2)"),
        ("least", False, 'raise ValueError(f"{a + 1}") -> pass (line 3)'),
        ("least", False, "ValueError -> ArithmeticError (line 3)"),
        ("least", False, "a < b -> (a <= b) (line 4)"),
        ("Kept.get", True, "1 -> (1 + 1) (count)"),
        ("Kept.get", False, "count + 1 -> (count - 1) (line 1)"),
        ("Kept.get", False, "1 -> (1 + 1) (line 1)"),
    ]


def test_what_runs_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").mkdir()
    path = tmp_path / "python" / "mutated_text.py"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(path.parent))
    seen = []
    for edit in pycode.edits(TEXT):
        if edit.name == pycode.AT_IMPORT:
            continue
        sys.modules.pop("mutated_text", None)
        module = importlib.import_module("mutated_text")
        assert pycode.switch_on(path, edit.start, edit.end, edit.new), edit
        try:
            at = (module.least(6), module.least(2), module.least.__kwdefaults__["most"])
        except ValueError:
            at = (False, False, -1.0)
        seen.append((*at, module.Kept().get("a")))
    sys.modules.pop("mutated_text", None)
    same = (False, True, 0.0, 2)
    assert seen == [
        (False, False, 0.0, 2), (False, True, 0.01, 2), (False, False, -1.0, 2), same, same,
        (True, True, 0.0, 2), (False, True, 0.0, 3), (False, True, 0.0, 0), (False, True, 0.0, 3),
    ]  # fmt: skip


def test_what_ran_at_import_is_changed_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mutated_text.py"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    loader = importlib.machinery.SourceFileLoader
    monkeypatch.setattr(loader, "get_code", loader.get_code)  # is there again after the test
    edit = next(e for e in pycode.edits(TEXT) if e.name == pycode.AT_IMPORT)
    pycode.switch_on_at_import(path, edit.start, edit.end, edit.new)
    module = importlib.import_module("mutated_text")
    sys.modules.pop("mutated_text")
    assert module.BASE == 4
    assert module.least.__defaults__ == (8,)


def test_conditions_calls_and_loops_are_changed() -> None:
    text = "def f(a, b):\n    while a(b):\n        break\n    return a.g(b, 1)\n"
    found = [e.note for e in pycode.edits(text)]
    assert found == [
        "a(b) -> (not a(b)) (line 1)",
        "break -> continue (line 2)",
        "a.g(b, 1) -> a.g(1, b) (line 3)",
        "1 -> (1 + 1) (line 3)",
    ]


def test_what_stands_behind_a_condition_in_c_is_left_out() -> None:
    text = "int f(int a) {\n    if (a < 0) return -1;\n    return a;\n}\n"
    [fn] = ctext.functions(text)
    [edit] = ctext.never_true(text, fn)
    assert ctext.copy_of(text, fn, "g", edit).split("{", 1)[1] == (
        "\n    if (0 && (a < 0)) return -1;\n    return a;\n}\n")  # fmt: skip


def test_lanes_that_an_instruction_picks_stay() -> None:
    """They are a part of the instruction: most other numbers do not compile."""
    text = "int f(int a) {\n    v = _mm256_extractf128_ps(a, 1);\n    return g(a, 1);\n}\n"
    [fn] = ctext.functions(text)
    assert [e.start for e in ctext.edits(text, fn, False)] == [text.rindex("1")]


def test_parameters_of_c() -> None:
    heads = "void *(*get)(int), const char *name, float sum[FEW][TOGETHER], int of[], void"
    assert ctext.parameter_names(heads) == ["get", "name", "sum", "of"]


FUNCTION = """static int twice(int x) {
#ifdef TMPL_CUDA
    return x << 1;
#else
    return x + x;
#endif
}
"""


@pytest.mark.parametrize("inline", ["TMPL_INLINE", "VEC_INLINE", "FFT_INLINE", "static inline"])
def test_mutants_of_inlined_functions_are_c(inline: str) -> None:
    """Compilers refuse static twice, and what they refuse would be no mutant."""
    text = f"{inline} int f(int x) {{ return x; }}"
    [fn] = ctext.functions(text)
    assert ctext.copy_of(text, fn, "g").count("static") == 1
    assert "INLINE" not in ctext.copy_of(text, fn, "g") + ctext.prototype(text, fn)
    assert ctext.prototype(text, fn).split()[0] == "static"


def test_what_other_devices_compile_is_left_alone() -> None:
    (fn,) = ctext.functions(FUNCTION)
    notes = [e.note for e in ctext.edits(FUNCTION, fn, False)]
    assert notes == ["return x [+ -> -] x;"]


def test_what_other_processors_compile_is_left_alone() -> None:
    text = FUNCTION.replace("#ifdef TMPL_CUDA", "#if TMPL_HAS_FMA")
    for fused, sign in ((False, "<<"), (True, "+")):
        [(first, end)] = ctext.left_alone(text, fused)
        assert text[first:end].split() == ["return", "x", sign, "1;" if sign == "<<" else "x;"]


def test_what_is_known_is_written_after_each_mutant(tmp_path: Path) -> None:
    """A run that is cut off leaves what it found, and nothing half written."""
    run = object.__new__(runner.Runner)
    run.written, run.results = tmp_path / "out.json", {}
    run.items, run.facts = [], {}
    for how in ("killed", "lives", "unreached"):
        run.note({"id": f"one that is {how}"}, how)
        found = json.loads(run.written.read_text("utf-8"))
        assert found == {"results": run.results, "failing": []}
    assert list(tmp_path.iterdir()) == [run.written]
