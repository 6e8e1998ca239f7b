"""Plugins of older and newer minors, and broken ones, on older and newer hosts (matrix.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import as_user
import matrix
import pytest

needs_compiler = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")
DOC = as_user.ROOT / "docs" / "plugin-abi.md"


def test_the_table_of_the_docs() -> None:
    assert matrix.expected_table() in DOC.read_text(encoding="utf-8"), (
        "docs/plugin-abi.md: put in what tests/plugins/matrix.py prints"
    )


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    return matrix.all_plugins(folder / "plugins", folder / "headers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The package of a host, built once."""
    built: dict[str, Path] = {}

    def get(key: str) -> Path:
        if key != "this" and not matrix.core_commands():
            pytest.skip("the package is not in a build folder")
        if key not in built:
            built[key] = matrix.site_of(key, tmp_path_factory.mktemp("host"))
        return built[key]

    return get


HOSTS = [
    pytest.param(key, marks=[] if key == "this" else [pytest.mark.slow]) for key in matrix.HOSTS
]


@needs_compiler
@pytest.mark.parametrize("key", HOSTS)
def test_what_a_host_says(
    plugins: Path, site: Callable[[str], Path], key: str, tmp_path: Path
) -> None:
    text = matrix.doctor(site(key), plugins, tmp_path)
    for name in [*matrix.GENERATIONS, *matrix.cases.CASES]:
        words = matrix.expected(name, matrix.HOSTS[key])
        line = matrix.line_about(text, name)
        assert words in line, line
        assert ("PROBLEM" in line) == (words != "works"), line


@needs_compiler
@pytest.mark.parametrize("key", HOSTS)
@pytest.mark.parametrize("name", matrix.GENERATIONS)
def test_it_works_there(plugins: Path, site: Callable[[str], Path], key: str, name: str) -> None:
    host = matrix.HOSTS[key]
    if matrix.expected(name, host) == "works":
        matrix.use(site(key), plugins, name, host)
    else:
        with pytest.raises(AssertionError, match="needs plugin ABI"):
            matrix.use(site(key), plugins, name, host)
