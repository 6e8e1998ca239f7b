"""`tenon plugin reference`: the SDK's headers as a page, or what they say of one name."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path

HEADERS = ("plugin.h", "device.h", "dtype.h", "status.h")
# A comment that stands alone, a directive for the preprocessor with its continuation lines, or code
# up to the blank line or the comment after it.
_PIECES = re.compile(r"^/\*.*?\*/[^\n]*$|^(?!/\*)\S.*?(?=^\s*$|^/\*|\Z)", flags=re.S | re.M)
_RULE = re.compile(r"^-{3,} (?P<title>.+?) -{2,}$")
_NAMES = re.compile(
    r"^#define (\w+)"
    r"|^\} (\w+);"
    r"|^(?:struct|enum) (\w+) \{"
    r"|^static inline [\w *]+?(\w+)\("
    r"|^typedef \w+ \(\*(\w+)\)\("
    r"|^typedef (?:struct )?\w+ (\w+);",
    flags=re.M,
)
_SCAFFOLD = re.compile(
    r"^#(?:include|ifdef|ifndef|endif|if|else|define TENON_\w+$)\b.*\n|^extern \"C\" \{\n|^\}\n",
    re.M,
)


@dataclass
class Section:
    """A part of a header under one title: prose and declarations in their order."""

    title: str
    parts: list[tuple[str, str]] = field(default_factory=list)  # ("text" or "code", content)

    def names(self) -> list[str]:
        """What its declarations bring, in their order."""
        found: list[str] = []
        for kind, content in self.parts:
            if kind == "code":
                found += [next(filter(None, m.groups())) for m in _NAMES.finditer(content)]
        return list(dict.fromkeys(found))

    def markdown(self) -> str:
        """The section as Markdown."""
        out = [f"## {self.title}"]
        for kind, content in self.parts:
            out.append(content if kind == "text" else f"```c\n{content}\n```")
        return "\n\n".join(out) + "\n"


def _prose(comment: str) -> tuple[str | None, str]:
    """The title of a comment, if it has one, and its text."""
    body = comment.strip().removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in body.split("\n")]
    lines[0] = lines[0].strip()
    title = _RULE.match(lines[0])
    if title:
        return title["title"], "\n".join(lines[1:]).strip()
    return None, "\n".join(lines).strip()


def sections(folder: Path, header: str) -> list[Section]:
    """The sections of one header."""
    text = (folder / "tenon" / header).read_text(encoding="utf-8")
    found = [Section(f"tenon/{header}")]
    for piece in _PIECES.findall(text):
        if piece.startswith("/*") and piece.rstrip().endswith("*/"):
            title, words = _prose(piece)
            if title:
                found.append(Section(title))
            if words:
                found[-1].parts.append(("text", words))
        else:
            code = _SCAFFOLD.sub("", piece + "\n").strip("\n")
            if code:
                found[-1].parts.append(("code", code))
    return [s for s in found if s.parts]


def page(folder: Path) -> str:
    """The whole reference as Markdown: an index of names, then every section."""
    everything = [s for header in HEADERS for s in sections(folder, header)]
    lists = ((s.title, ", ".join(f"`{n}`" for n in s.names())) for s in everything)
    index = "".join(f"- {title}: {names}\n" for title, names in lists if names)
    head = "# The plugin SDK\n\nMade from the headers by `tenon plugin reference`.\n"
    return "\n".join([head, index, *(s.markdown() for s in everything)])


def entry(folder: Path, name: str) -> str | None:
    """The section that declares `name`, as Markdown; None: no header does."""
    every = (s for header in HEADERS for s in sections(folder, header))
    return next((s.markdown() for s in every if name in s.names() or f'"{name}"' in s.title), None)


def command(options: argparse.Namespace) -> int:
    """Prints the page, or the section of one name."""
    folder = Path(__file__).parent.parent / "include"
    if not options.name:
        print(page(folder), end="")
        return 0
    found = entry(folder, options.name)
    print((found or f"no header of the SDK declares '{options.name}'").rstrip())
    return 0 if found else 1
