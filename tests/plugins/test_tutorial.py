"""docs/plugins.md, executed as it stands: its C file is written, its Python runs top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import as_user
import pytest
import tenon as tn

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")
PACKAGES = str(Path(tn.__file__).absolute().parents[1])
PAGE = (as_user.ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.S | re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in blocks("c"):
        name = re.match(r"/\* (\w+\.c) \*/", block)
        assert name, "a C block of the page starts with its file name"
        (tmp_path / name[1]).write_text(block, encoding="utf-8")
    return tmp_path


def run(folder: Path, *args: str) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": PACKAGES}
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_python_of_the_page(folder: Path) -> None:
    assert len(blocks("python")) >= 4
    script = folder / "page.py"
    script.write_text("\n".join(blocks("python")), encoding="utf-8")
    run(folder, str(script))


def test_compiler_line_of_the_page(folder: Path) -> None:
    line = blocks("sh")[0].replace("$(tenon config --include)", f"-I{as_user.SDK}")
    subprocess.run(line, shell=True, cwd=folder, check=True)
    run(
        folder, "-c", 'import tenon as tn; tn.load_library("mish.so"); tn.ops.mish.mish(tn.ones(2))'
    )
