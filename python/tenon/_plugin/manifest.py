"""A plugin's manifest, read strictly, with what is wrong in words. The core has a reader of its
own; this one serves those who write manifests: `tenon plugin check` and the build backend."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenon._plugin import native
from tenon._plugin.files import contents

ABI_MAJOR = 1
MAX_BYTES = 64 << 10  # of a manifest, as in plugins/loader.c
KINDS = ("devices", "dtypes", "ops", "layers")


@dataclass(frozen=True)
class Manifest:
    name: str
    version: str
    library: str  # a file beside the manifest
    min_minor: int  # of the plugin ABI, the oldest that the plugin works with


def load(path: Path) -> Any:
    """What the file holds; ValueError where it is no JSON, no regular file, or longer than the core
    reads."""
    data = contents(path, MAX_BYTES)
    try:
        return json.loads(data.decode())
    except ValueError as err:
        raise ValueError(f"{path.name} is no JSON: {err}") from None
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deep") from None


def read(path: Path) -> Manifest:
    """Raises ValueError, with the file's name and what should be there."""
    text = load(path)
    if not isinstance(text, dict) or text.get("manifest") != 1:
        raise ValueError(f'{path.name} is no plugin manifest: it must be {{"manifest": 1, ...}}')
    for key in ("name", "version", "library"):
        if not isinstance(text.get(key), str) or not text[key] or "\0" in text[key]:
            raise ValueError(f"{path.name}: '{key}' must be a text")
    if "/" in text["library"]:
        raise ValueError(f"{path.name}: 'library' is the name of a file beside the manifest")
    abi = text.get("abi")
    minor = abi.get("min_minor") if isinstance(abi, dict) else None
    if not isinstance(minor, int) or minor < 0 or abi.get("major") != ABI_MAJOR:
        raise ValueError(f'{path.name}: \'abi\' must be {{"major": {ABI_MAJOR}, "min_minor": ...}}')
    for kind in KINDS:
        names = text.get(kind, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path.name}: '{kind}' must be a list of names")
    if not any(text.get(kind) for kind in KINDS):
        raise ValueError(f"{path.name} lists no {' or '.join(KINDS)}: nothing would load it")
    return Manifest(text["name"], text["version"], text["library"], minor)


def served_minor() -> int:
    """The newest minor version of the plugin ABI that this Tenon serves."""
    header = (native.PACKAGE / "include" / "tenon" / "plugin.h").read_text(encoding="utf-8")
    (minor,) = re.findall(r"^#define TN_ABI_MINOR (\d+)$", header, re.M)
    return int(minor)
