"""The documentation as a site: every link leads somewhere, every public name stands on its page."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tenon

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "site"
LISTING = Path(tenon.__file__).absolute().parents[2] / "dispatch" / "include" / "tenon" / "ops.md"
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)

pytestmark = pytest.mark.skipif(not LISTING.exists(), reason="the package is not that of a build")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [sys.executable, str(FOLDER), "--out", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "pages"


def headings(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return [line[3:].replace("\\", "") for line in text.splitlines() if line.startswith("## ")]


def test_links_lead_to_pages(pages: Path) -> None:
    found = 0
    for page in pages.rglob("*.md"):
        text = _CODE.sub("", page.read_text(encoding="utf-8"))
        for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text):
            if "://" in link or link.startswith("#"):
                continue
            found += 1
            target = (page.parent / link.split("#")[0]).resolve()
            assert target.exists(), f"{page.relative_to(pages)}: {link}"
    assert found > 30


def test_the_repositorys_pages_are_there(pages: Path) -> None:
    for path in ROOT.glob("docs/*.md"):
        assert (pages / "guide" / path.name).exists()
    assert (pages / "rooms" / "backends-cpu.md").exists() or (
        pages / "rooms" / "backends.md"
    ).exists()
    first = (pages / "index.md").read_text(encoding="utf-8")
    assert first.startswith("# Tenon") and "](rooms/" not in first.split("\n\n")[0]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("tenon", ["softmax", "einsum", "tensor", "manual_seed", "save"]),
        ("tenon.Tensor", ["backward", "add_", "view", "shape", "requires_grad"]),
        ("tenon.nn", ["Linear", "LSTM", "Module", "TransformerEncoderLayer"]),
        ("tenon.nn.functional", ["cross_entropy", "conv2d", "scaled_dot_product_attention"]),
        ("tenon.optim", ["AdamW", "LBFGS"]),
        ("tenon.linalg", ["svd", "solve"]),
        ("tenon.utils.data", ["DataLoader", "IterableDataset"]),
    ],
)
def test_names_have_entries(pages: Path, page: str, names: list[str]) -> None:
    have = headings(pages / "reference" / f"{page}.md")
    assert have == sorted(have, key=str.lower) and len(have) == len(set(have))
    assert not [name for name in names if name not in have]


def test_an_entry_is_what_help_says(pages: Path) -> None:
    text = (pages / "reference" / "tenon.optim.md").read_text(encoding="utf-8")
    entry = text[text.index("## SGD\n") :]
    assert "class SGD(params" in entry and "-> 'None'" not in entry
    assert "- `momentum`: share of the newest batch" in entry
    assert ">>> optimizer.step()" in entry and "**Step** " in entry


def test_every_operator_is_listed_once(pages: Path) -> None:
    listed = [name for page in (pages / "operators").glob("*.md") for name in headings(page)]
    source = LISTING.read_text(encoding="utf-8")
    assert sorted(listed) == sorted(re.findall(r"^## (.*)$", source, re.M))


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed")
def test_the_site_is_made(pages: Path) -> None:
    site = pages.parent / "site"
    assert (site / "index.html").exists() and (site / "search" / "search_index.json").exists()
    for page in pages.rglob("*.md"):
        assert (site / page.relative_to(pages).with_suffix(".html")).exists()
