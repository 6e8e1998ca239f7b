"""./dev docs: the documentation as a site, with search: guide, tutorials, rooms, reference.

Writes Markdown pages below OUT/pages and, where MkDocs is installed, HTML below OUT/site.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import guide
import reference

TITLES = {"tutorials": "Tutorials", "guide": "Guide", "rooms": "Rooms of the source"}


def _title(text: str) -> str:
    return text.splitlines()[0].lstrip("# ").strip()


def write_pages(folder: Path, listing: Path) -> list[object]:
    """Writes every page; gives the menu as MkDocs takes it."""
    pages: dict[str, str] = {}
    for path in guide.sources():
        page = guide.page_of(path)
        if page:
            pages[page] = guide.convert(path, page)
    menu: dict[str, list[object]] = {title: [] for title in TITLES.values()}
    for page, text in pages.items():
        room = page.split("/")[0]
        if title := TITLES.get(room):
            name = page[6:-3].replace("-", "/") if room == "rooms" else _title(text)
            menu[title].append({name: page})
    for title, names in reference.MODULES.items():
        rows: list[object] = menu.setdefault(title, [])
        for name in names:
            pages[f"reference/{name}.md"] = reference.page(name)
            rows.append({name: f"reference/{name}.md"})
    rows = menu.setdefault("Operators", [])
    for family, text in reference.operators(listing).items():
        pages[f"operators/{family}.md"] = text
        rows.append({family: f"operators/{family}.md"})
    for page, text in pages.items():
        to = folder / page
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")
    for picture in guide.ROOT.glob("docs/*.svg"):
        shutil.copy(picture, folder / str(guide.page_of(picture)))
    rest: list[object] = [{"Changes": "changelog.md"}, {"Contributing": "contributing.md"}]
    return [{"Tenon": "index.md"}, *({k: v} for k, v in menu.items()), *rest]


def settings(out: Path, menu: list[object]) -> Path:
    """The file that MkDocs reads; JSON is YAML."""
    path = out / "mkdocs.yml"
    text = {
        "site_name": "Tenon",
        "site_url": "",
        "docs_dir": str(out / "pages"),
        "site_dir": str(out / "site"),
        "use_directory_urls": False,
        "theme": {"name": "readthedocs", "highlightjs": False, "navigation_depth": 2},
        "plugins": ["search"],
        "markdown_extensions": ["sane_lists"],
        "validation": {"links": {"anchors": "warn"}},
        "nav": menu,
    }
    path.write_text(json.dumps(text, indent=1), encoding="utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev docs", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=guide.ROOT / "build" / "docs", help="where it is written"
    )
    args = parser.parse_args()
    out = args.out.resolve()
    shutil.rmtree(out / "pages", ignore_errors=True)
    import tenon  # the reference is that of the package that is built

    build = Path(tenon.__file__).absolute().parents[2]
    listing = build / "dispatch" / "include" / "tenon" / "ops.md"
    menu = write_pages(out / "pages", listing)
    config = settings(out, menu)
    print(f"{sum(1 for _ in (out / 'pages').rglob('*.md'))} pages in {out / 'pages'}")
    try:
        import mkdocs  # noqa: F401
    except ImportError:
        print("no HTML: MkDocs is not installed (docs/site/requirements.txt)")
        return 0
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", config]
    )
    if done.returncode == 0:
        print(f"open {out / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
