"""Plugins of installed packages.

A package declares an entry point in the group `tenon.plugins`; its value is the name of a package
or `package:manifest.json`. Only metadata is read, and folders are looked at: nothing is imported,
so that no code of a plugin runs before its device, dtype or operator is asked for.

The core asks for this list when somebody uses a name that is not known, a slip of the pen among
them, so this module imports next to nothing."""

from __future__ import annotations

import os
import sys
from typing import Any

GROUP = "tenon.plugins"


def installed() -> list[str]:
    """Folders and manifests, absolute, that the packages on sys.path declare."""
    if not _declared():
        return []
    from importlib import metadata  # reads the metadata of every package: only where there is some

    found = []
    for point in metadata.entry_points(group=GROUP):
        package, _, manifest = point.value.partition(":")
        parts = package.strip().split(".")
        if not all(part.isidentifier() for part in parts) or "/" in manifest:
            continue
        folder = _folder(parts, point.dist)
        if folder is not None:
            found.append(os.path.join(folder, manifest.strip()) if manifest else folder)
    return found


def _declared() -> bool:
    """Whether some package on sys.path may declare plugins, by a look at files alone: names that do
    not exist are asked for here, and most of them are no plugin's."""
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except NotADirectoryError:
            return True  # an archive
        except OSError:
            continue
        if any(_mentions_group(os.path.join(entry, name)) for name in names):
            return True
    return False


def _mentions_group(path: str) -> bool:
    """Whether this is a package's metadata, and may speak of plugins."""
    if path.endswith(".egg"):
        return True  # perhaps an archive
    if not path.endswith((".dist-info", ".egg-info")):
        return False
    try:
        with open(os.path.join(path, "entry_points.txt"), "rb") as file:
            return GROUP.encode() in file.read()
    except OSError:
        return False  # most packages declare nothing


def _folder(parts: list[str], dist: Any) -> str | None:
    """The folder of a package: beside its metadata, else on sys.path; never the current folder."""
    roots = [str(dist.locate_file(""))] if dist is not None else []
    for root in [*roots, *sys.path]:
        folder = os.path.join(root, *parts)
        if os.path.isabs(root) and os.path.isdir(folder):
            return os.path.realpath(folder)
    return None
