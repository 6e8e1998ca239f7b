"""Wheels and source archives, as the packaging standards describe them, the same bytes each time.

Used by tenon.build_plugin; knows nothing of plugins.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = re.compile(
    r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?", re.I
)
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
EARLIEST = 315532800  # 1980-01-01, the first moment that a zip file can name


def stamp() -> int:
    """The time that all files of an archive get: SOURCE_DATE_EPOCH, else always the same."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(text), EARLIEST) if text.isdecimal() else EARLIEST


def stem(project: Mapping[str, Any]) -> str:
    """The first part of an archive's name: mine-1.0."""
    name = re.sub(r"[-_.]+", "_", project["name"]).lower()
    return f"{name}-{project['version'].lower()}"


# ---- Metadata -----------------------------------------------------------------------------------


def _text_of(value: Any, root: Path) -> str:
    """A `readme` or `license`: a file's name, or {file = ...} or {text = ...}."""
    if isinstance(value, str):
        value = {"file": value}
    return value["text"] if "text" in value else (root / value["file"]).read_text(encoding="utf-8")


def _people(kind: str, people: list[dict[str, str]]) -> list[tuple[str, str]]:
    lines = []
    for person in people:
        name, email = person.get("name", ""), person.get("email", "")
        if email:
            lines.append((f"{kind}-email", f"{name} <{email}>" if name else email))
        else:
            lines.append((kind, name))
    return lines


def _requirement(text: str, extra: str) -> str:
    requirement, _, marker = text.partition(";")
    marker = f"({marker.strip()}) and " if marker.strip() else ""
    return f'{requirement.strip()}; {marker}extra == "{extra}"'


def metadata(project: Mapping[str, Any], root: Path) -> str:
    """The text of METADATA and PKG-INFO out of [project]."""
    fields = [("Metadata-Version", "2.1"), ("Name", project["name"])]
    fields.append(("Version", project["version"]))
    if "description" in project:
        fields.append(("Summary", " ".join(project["description"].split())))
    fields += _people("Author", project.get("authors", []))
    fields += _people("Maintainer", project.get("maintainers", []))
    if "license" in project:
        value = project["license"]  # an SPDX expression, or a table
        text = value if isinstance(value, str) else _text_of(value, root)
        fields.append(("License", text.strip().replace("\n", "\n        ")))
    if "keywords" in project:
        fields.append(("Keywords", ",".join(project["keywords"])))
    fields += [("Classifier", text) for text in project.get("classifiers", [])]
    fields += [("Project-URL", f"{k}, {url}") for k, url in project.get("urls", {}).items()]
    if "requires-python" in project:
        fields.append(("Requires-Python", project["requires-python"]))
    fields += [("Requires-Dist", text) for text in project.get("dependencies", [])]
    for extra, texts in project.get("optional-dependencies", {}).items():
        fields.append(("Provides-Extra", extra))
        fields += [("Requires-Dist", _requirement(text, extra)) for text in texts]
    body = ""
    if "readme" in project:
        readme = project["readme"]
        name = readme if isinstance(readme, str) else readme.get("file", "")
        kind = "text/x-rst" if name.endswith(".rst") else "text/markdown"
        fields.append(("Description-Content-Type", kind))
        body = "\n" + _text_of(readme, root)
    return "".join(f"{name}: {value}\n" for name, value in fields) + body


def entry_points(groups: Mapping[str, Mapping[str, str]]) -> str:
    parts = []
    for group, points in sorted(groups.items()):
        lines = [f"{name} = {target}\n" for name, target in sorted(points.items())]
        parts.append(f"[{group}]\n{''.join(lines)}")
    return "\n".join(parts)


# ---- Archives -----------------------------------------------------------------------------------


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"


def write_wheel(
    folder: Path, stem: str, tag: str, members: Mapping[str, bytes], info: Mapping[str, str]
) -> str:
    """Writes `stem-tag.whl` with `members` and, in its .dist-info folder, the texts of `info`;
    returns the file's name."""
    dist_info = f"{stem}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: tenon\nRoot-Is-Purelib: false\nTag: {tag}\n"
    texts = {f"{dist_info}/{name}": text.encode() for name, text in info.items()}
    texts[f"{dist_info}/WHEEL"] = wheel.encode()
    files = {**dict(sorted(members.items())), **dict(sorted(texts.items()))}
    record = f"{dist_info}/RECORD"
    lines = [_record_line(name, data) for name, data in files.items()]
    files[record] = ("".join(lines) + f"{record},,\n").encode()
    date = time.gmtime(stamp())[:6]
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if data.startswith(b"\x7fELF") else 0o644  # libraries and programs
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return path.name


def write_sdist(folder: Path, stem: str, members: Mapping[str, bytes]) -> str:
    """Writes `stem.tar.gz` with `members`; returns the file's name."""
    path = folder / f"{stem}.tar.gz"
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=stamp()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(members.items()):
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), stamp(), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return path.name
