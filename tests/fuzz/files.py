"""Reads files that are cut off or have bytes changed: .pt, .safetensors, .npy, programs of
`jit` and `export`, plugin manifests.
The readers say what is wrong in an exception of theirs; they never end the process, take more
memory than the file can mean, or raise what only a mistake in them would raise.

    python tests/fuzz/files.py --seed 7 --seconds 60

A file on which a reader fails stays where the last line says.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenon as tn
from tenon.io import npy, safetensors
from tenon.io.errors import FileFormatError

# What readers raise on purpose; anything else is a mistake in them.
EXPECTED = (FileFormatError, OSError)
CHECKED = (".pt2", ".script", ".tng")  # every value in them has a checksum
SCRIPT = Path(__file__).parent.parent / "data" / "torchscript" / "course.pt"
MANIFEST = (
    '{"manifest": 1, "name": "fuzz", "version": "1", "library": "tenon_fuzz.so",\n'
    ' "abi": {"major": 1, "min_minor": 0}, "devices": ["fuzz"], "summary": "x\\u00e9"}\n'
)


def samples(folder: Path) -> list[tuple[str, bytes]]:
    """Good files of every format."""
    t = tn.arange(24, dtype=tn.float32).reshape(2, 3, 4)
    state = OrderedDict(w=t, view=t[0].t(), half=t.half(), deep={"a": [1, tn.ones(2)]})
    tn.save(state, folder / "a.pt")
    safetensors.save_file({"w": t, "n": tn.arange(3)}, folder / "a.safetensors", {"k": "v"})
    npy.save(folder / "a.npy", t)
    net = tn.nn.Sequential(tn.nn.Linear(3, 2), tn.nn.BatchNorm1d(2))
    tn.export.save(tn.export.export(net, (tn.ones(4, 3),)), folder / "a.pt2")
    tn.jit.save(tn.jit.trace(net.eval(), tn.ones(4, 3)), folder / "a.tng")
    (folder / "a.script").write_bytes(SCRIPT.read_bytes())
    (folder / "a.json").write_text(MANIFEST, encoding="utf-8")
    return [(p.suffix, p.read_bytes()) for p in sorted(folder.glob("a.*"))]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: a cut, another bit or byte, a number at its limits, a block moved."""
    b = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(b)) if b else 0
        how = rng.randrange(6)
        if not b or how == 0:
            del b[at:]
        elif how == 1:
            b[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            b[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x2E, 0x28, 0x39))
        elif how == 3:
            word = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1))
            b[at : at + 8] = word.to_bytes(8, "little")
        elif how == 4:
            b[at:at] = bytes(b[rng.randrange(len(b)) :][: rng.randrange(1, 40)])
        else:
            del b[at : at + rng.randrange(1, 40)]
    return bytes(b)


def values(found: Any) -> list[Any]:
    """The tensors of a file, as lists."""
    tensors = found.values() if isinstance(found, dict) else [found]
    return [t.tolist() for t in tensors if isinstance(t, tn.Tensor) and t.numel() < 10**6]


def read(suffix: str, path: Path) -> list[Any]:
    readers: dict[str, Callable[[Path], Any]] = {
        ".pt": tn.load,
        ".safetensors": safetensors.load_file,
        ".npy": npy.load,
        ".pt2": lambda path: tn.export.load(path).module().state_dict(),
        ".script": lambda path: tn.jit.load(path).state_dict(),
        ".tng": lambda path: tn.jit.load(path).state_dict(),
    }
    return values(readers[suffix](path))


def list_plugins(folder: Path) -> int:
    """The manifests of a folder are read once per process: in one of its own."""
    code = "import tenon; assert tenon.plugins()"
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder)}
    return subprocess.run([sys.executable, "-c", code], env=env, timeout=60).returncode


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    folder = Path(tempfile.mkdtemp(prefix="tenon-fuzz-"))
    good = samples(folder)
    wanted = {s: read(s, folder / f"a{s}") for s in CHECKED}
    end = time.monotonic() + options.seconds
    n = 0
    manifests = folder / "manifests"
    manifests.mkdir()
    while time.monotonic() < end:
        rng = random.Random(f"{options.seed}:{n}")
        suffix, data = good[n % len(good)]
        path = folder / f"case{suffix}"
        if suffix == ".json":
            path = manifests / f"case{n}.json"
        path.write_bytes(damaged(data, rng))
        if suffix != ".json":
            try:
                found = read(suffix, path)
                assert found == wanted.get(suffix, found), "another value without an error"
            except EXPECTED:
                pass
            except BaseException as e:
                print(f"case {n}: {type(e).__name__}: {e}\n{path}")
                raise
        n += 1
    if list_plugins(manifests) != 0:
        print(f"{manifests}")
        return 1
    for p in sorted(folder.rglob("*"), reverse=True):
        p.rmdir() if p.is_dir() else p.unlink()
    folder.rmdir()
    print(f"{n} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
