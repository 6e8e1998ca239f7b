"""docs/cuda.md follows three kernels from the call to the line: its sessions are run on the host
harness, and the lines that it quotes are in the files that it names."""

from __future__ import annotations

import re

import harness
import pytest

TITLE = "## Three kernels, from the call to the line"


def section() -> str:
    text = (harness.ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    return text.split(TITLE)[1].split("\n## ")[0]


def quotes() -> list[tuple[str, str]]:
    """File and line of all that is quoted: an indented line is of the file that was named last."""
    found, file = [], ""
    for line in section().splitlines():
        if not line.startswith("    "):
            named = re.findall(r"`((?:backends|dispatch|nn)/[\w/.]+\.\w+)`", line)
            file = named[-1] if named else file
        elif file:
            found.append((file, line.strip()))
    return found


def test_quoted_lines_are_there() -> None:
    sessions = {line.strip() for line in session().splitlines()}
    wanted = [(file, line) for file, line in quotes() if line not in sessions]
    assert len(wanted) > 12
    for file, line in wanted:
        text = (harness.ROOT / file).read_text(encoding="utf-8")
        assert line in (" ".join(found.split()) for found in text.splitlines()), (file, line)


def session() -> str:
    """What is typed, and what is answered."""
    blocks = re.findall(r"(?:^    .*\n)+", section(), re.MULTILINE)
    return "\n".join(block for block in blocks if block.startswith("    >>>"))


@pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")
def test_sessions_are_run() -> None:
    harness.script(f"""
import doctest
test = doctest.DocTestParser().get_doctest({session()!r}, {{}}, "docs/cuda.md", None, None)
result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
assert result.failed == 0 and result.attempted > 8, result
""")
