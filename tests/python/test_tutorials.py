"""The tutorials' code runs, block after block, and prints what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
import tenon as tn

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "tutorials").glob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def run(page: Path) -> int:
    """Runs the blocks of a page in one namespace; how many examples were compared."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "tutorial"}
    compared = 0
    for match in _BLOCK.finditer(text):
        block, line = match[1], text[: match.start()].count("\n") + 1
        if not block.startswith(">>>"):
            exec(compile("\n" * line + block, str(page), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), line)
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=report.append, clear_globs=False)
        assert not runner.failures, "".join(report)
        names.update(test.globs)
        compared += len(test.examples)
    return compared


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_tutorial(page: Path) -> None:
    state = tn.get_rng_state()
    try:
        assert run(page) > 0
    finally:
        tn.set_rng("philox")
        tn.set_rng_state(state)
