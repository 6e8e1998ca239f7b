"""Lays out the package inside the build tree:
`link_site.py STAMP DEPFILE BUILD_ROOT PACKAGE_SOURCE FILE...`.

BUILD_ROOT/site/tenon gets a link to each Python source and to each FILE, headers in include/tenon,
as an installation would have copies, so that PYTHONPATH=BUILD_ROOT/site runs what was just built.
Plugins, manifests and a BLAS that is brought along go to BUILD_ROOT/plugins, beside libtenon. A
.pc file is copied because pkg-config may look for the rest beside the file that a link leads to.
Links whose source is gone are removed. DEPFILE names the folders of the source, which change when a
file comes or goes.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def wanted_links(build: Path, source: Path, files: list[Path]) -> dict[Path, Path]:
    site = build / "site" / "tenon"
    links = {
        site / path.relative_to(source): path
        for path in source.rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".bin") or path.name == "py.typed"
    }
    for path in files:
        folder = site
        if path.name.startswith(("tenon_", "libscipy_")):
            folder = build / "plugins"
        elif path.name == "functional.pyi":
            folder = site / "nn"
        elif path.suffix == ".h":
            folder = site / "include" / "tenon"
        elif path.suffix == ".pc":
            folder = site / "pkgconfig"
        links[folder / path.name] = path
    return links


def sync(link: Path, target: Path) -> None:
    if target.suffix == ".pc":
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, link)
        return
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(link.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def main(build: Path, source: Path, files: list[Path]) -> None:
    links = wanted_links(build, source, files)
    for link, target in links.items():
        sync(link, target)
    for folder in (build / "site", build / "plugins"):
        for path in folder.rglob("*"):
            if path.is_symlink() and path not in links:
                path.unlink()


def write_depfile(depfile: Path, stamp: str, source: Path) -> None:
    folders = [p for p in source.rglob("*") if p.is_dir() and p.name != "__pycache__"]
    names = [str(p).replace(" ", "\\ ") for p in [source, *sorted(folders)]]
    depfile.write_text(f"{stamp}: {' '.join(names)}\n", encoding="utf-8")


if __name__ == "__main__":
    build, source, *files = (Path(arg).resolve() for arg in sys.argv[3:])
    main(build, source, files)
    write_depfile(Path(sys.argv[2]), sys.argv[1], source)
    Path(sys.argv[1]).touch()
