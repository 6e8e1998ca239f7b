"""Looks at a release wheel: `check_wheel.py WHEEL`: one file for every CPython, for named
systems, and small beside the OpenBLAS that it brings."""

from __future__ import annotations

import sys
import zipfile

MOST_MB = 6.0


def main(path: str) -> int:
    wrong = [tag for tag in ("-abi3-", "-manylinux_") if tag not in path]
    with zipfile.ZipFile(path) as wheel:
        parts = wheel.infolist()
    blas = sum(p.compress_size for p in parts if "openblas" in p.filename) / 1e6
    rest = sum(p.compress_size for p in parts) / 1e6 - blas
    print(f"{path}: {rest:.2f} MB, and {blas:.2f} MB of OpenBLAS")
    if wrong:
        print(f"the name lacks {', '.join(wrong)}", file=sys.stderr)
    if rest > MOST_MB:
        print(f"more than {MOST_MB:g} MB beside OpenBLAS", file=sys.stderr)
    if not blas:
        print("OpenBLAS is not inside", file=sys.stderr)
    return 1 if wrong or rest > MOST_MB or not blas else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
