"""A child process: reads `group title section...` lines, writes what happened as lines of JSON.

A `begin` line before each section tells the parent what ran if this process dies.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

import modules
import operators
import optimizers
import tenon as tn
import torch

GROUPS = {"operators": operators, "modules": modules, "optimizers": optimizers}


def tell(stream: Any, **line: Any) -> None:
    stream.write(json.dumps(line) + "\n")
    stream.flush()


def name(entry: Any, title: str) -> str:
    """The name that the tiers know it by: of an operator's variants, the operator's."""
    return entry.name if hasattr(entry, "op") else title


def serve(stream: Any) -> None:
    found = {g: {m.title(e): e for e in m.entries()} for g, m in GROUPS.items()}
    tell(stream, entries={g: [[t, name(e, t)] for t, e in es.items()] for g, es in found.items()})
    for request in sys.stdin:
        group, title, *sections = json.loads(request)
        for section in sections:
            tell(stream, begin=section)
            verdicts = GROUPS[group].SECTIONS[section](found[group][title])
            # What of a sample cannot be asked is the database's own fault, not an answer.
            kept = []
            try:
                kept = list(map(list, verdicts))
            except Exception as e:
                kept = [["the database", f"{type(e).__name__}: {e}"[:300]]]
            tell(stream, end=section, verdicts=kept)
        tell(stream, done=title)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tn.set_num_threads(1)
    # What a sample prints, or a C library, is no answer.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(lines)
