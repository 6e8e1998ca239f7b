"""The repository's own Markdown as pages of the site, with their links turned into the site's."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.S | re.M)


def page_of(path: Path) -> str | None:
    """Where a Markdown file or a picture of the repository lies in the site; None: nowhere."""
    rel = path.relative_to(ROOT)
    if rel.as_posix() == "README.md":
        return "index.md"
    if rel.as_posix() in ("CHANGELOG.md", ".github/CONTRIBUTING.md"):
        return f"{rel.stem.lower()}.md"
    if rel.parts[0] == "docs":
        return "/".join(("tutorials" if rel.parts[1] == "tutorials" else "guide", rel.name))
    return f"rooms/{'-'.join(rel.parts[:-1])}.md" if rel.name == "README.md" else None


def sources() -> list[Path]:
    """Every Markdown file that becomes a page, tutorials first."""
    found = [p for p in ROOT.glob("docs/**/*.md")]
    found += [p for p in ROOT.glob("*/**/README.md") if not p.is_relative_to(ROOT / "docs")]
    found = [
        p for p in found if not re.match(r"build|\.|node_modules", p.relative_to(ROOT).parts[0])
    ]
    found += [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / ".github" / "CONTRIBUTING.md"]
    return sorted(found, key=lambda p: ("tutorials" not in p.parts, p.as_posix()))


def relative(target: str, page: str) -> str:
    """A link from one page of the site to another."""
    return os.path.relpath(target, os.path.dirname(page) or ".").replace(os.sep, "/")


def _links(text: str, path: Path, page: str) -> str:
    def put(m: re.Match[str]) -> str:
        label, link = m[1], m[2]
        if "://" in link or link.startswith("#"):
            return m[0]
        name, _, anchor = link.partition("#")
        near = [(folder / name).resolve() for folder in (path.parent, ROOT)]
        target = next((t for t in near if t.exists()), near[0])
        if target.is_dir():
            target /= "README.md"
        there = page_of(target) if target.suffix in (".md", ".svg") and target.exists() else None
        if there is None:  # a source file, which has no page
            return label if "`" in label else f"`{label}`"
        return f"[{label}]({relative(there, page)}{'#' + anchor if anchor else ''})"

    return _LINK.sub(put, text)


def convert(path: Path, page: str) -> str:
    """The text of a page, links outside of code rewritten."""
    parts = _FENCE.split(path.read_text(encoding="utf-8"))
    return "".join(p if p.startswith("```") else _links(p, path, page) for p in parts)
