"""Op table generator: `python3 dispatch/opgen --out DIR dispatch/ops/*.toml`.

Writes the files that docs/op-table.md lists. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import emit_c
import emit_forms
import emit_py
import emit_stubs
from table import TableError, load


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate code from the op table.")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--flat", action="store_true", help="no tenon/ folder below --out")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("tables", type=Path, nargs="+")
    opts = parser.parse_args()
    try:
        ops = load([p.resolve() for p in opts.tables], opts.root.resolve())
        files = {}
        for part in (emit_c, emit_py, emit_forms, emit_stubs):
            files |= part.emit(ops)
    except TableError as err:
        print(f"opgen: {err}", file=sys.stderr)
        return 1
    for name, text in files.items():
        path = opts.out / (name.rpartition("/")[2] if opts.flat else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
