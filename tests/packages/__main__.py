"""python -m tests.packages [--packages PYTHON] [--only NAME...] [--write]: packages of PyTorch's
world, unmodified, each in a small job (`jobs/`), under `tenon run` and with PyTorch, and what
differs.

PYTHON is an interpreter whose environment has the packages of requirements.txt and no PyTorch;
./dev test --packages makes one. PyTorch is the one of the interpreter that runs this file; some
packages import torchvision, which stands beside it: one that was built for this PyTorch. --write
makes docs/packages.md of what came out; with --only it renews the rows of these jobs.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

HERE = Path(__file__).parent
TOP = HERE.parent.parent
PAGE = TOP / "docs" / "packages.md"
SECONDS = 600

Lines = list[tuple[str, float, list[float]]]


def run(command: list[str], job: Path, path: list[str]) -> tuple[Lines, str]:
    """What a job printed, and the last line of its error, "" if it ended well."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "", "TENON_RNG": "torch",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*command, str(job)], capture_output=True, text=True, timeout=SECONDS, check=False,
                env={**environment, "HF_HOME": folder}, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [], f"no end after {SECONDS} s"
    lines = []
    for line in done.stdout.splitlines():
        if line.startswith("#\t"):
            _, name, tolerance, *numbers = line.split("\t")
            lines.append((name, float(tolerance), [float(n) for n in numbers]))
    error = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return lines, error[0][:160] if error else ""


def differs(got: Lines, want: Lines) -> str:
    """The first report that is another one, "" for none."""
    for (name, _, a), (_, tolerance, b) in zip(got, want, strict=False):
        if len(a) != len(b):
            return f"{name}: {len(a)} numbers, not {len(b)}"
        scale = max([abs(x) for x in b if math.isfinite(x)], default=0.0) or 1.0
        for x, y in zip(a, b, strict=True):
            alike = x == y or (math.isnan(x) and math.isnan(y))
            if not alike and not abs(x - y) <= tolerance * scale:
                return f"{name}: {x:.6g}, not {y:.6g}"
    return "" if len(got) == len(want) else f"{len(got)} reports, not {len(want)}"


def reference_path(folder: str) -> list[str] | None:
    """A folder from which PyTorch, and torchvision if it lies beside it, can be imported."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent
    os.symlink(place, Path(folder) / "torch")
    for info in place.parent.glob("torch-*.dist-info"):
        os.symlink(info, Path(folder) / info.name)
    for name in ("torchgen", "functorch", "torchvision", "torchvision.libs"):
        if (place.parent / name).exists():
            os.symlink(place.parent / name, Path(folder) / name)
    return [folder]


def installed(python: str) -> dict[str, str]:
    """Versions of an environment's distributions."""
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    return {d.name.lower().replace("-", "_"): d.version for d in distributions(path=[site])}


NAMES = {
    "lightning": "lightning", "pyro": "pyro_ppl", "ignite": "pytorch_ignite",
    "transformers_families": "transformers", "whisper": "openai_whisper",
    "open_clip": "open_clip_torch", "torchcrf": "pytorch_crf",
    "laplace": "laplace_torch", "torchmin": "pytorch_minimize", "mmcv": "mmcv_lite",
    "mace": "mace_torch",
}  # fmt: skip


def page(rows: list[tuple[str, str, int, str]], torch: str) -> str:
    """docs/packages.md."""
    same = sum(not fault for *_, fault in rows)
    head = f"""# Packages

Made by `./dev test --packages`: packages from PyPI, unmodified, in small jobs
(`tests/packages/jobs`) that train or infer, under `tenon run` and with PyTorch {torch}.
{same} of {len(rows)} give PyTorch's numbers.

| package | version | numbers compared | outcome |
|---|---|---|---|
"""
    body = "".join(
        f"| {name} | {release} | {count} | {fault.replace('|', '/') or 'same'} |\n"
        for name, release, count, fault in rows
    )
    return head + body


def written() -> dict[str, tuple[str, str, int, str]]:
    """The rows of docs/packages.md, by package."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[2].isdecimal():
            fault = "" if cells[3] == "same" else cells[3]
            rows[cells[0]] = (cells[0], cells[1], int(cells[2]), fault)
    return rows


def main() -> int:
    """Runs the jobs; 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.packages", description=__doc__)
    parser.add_argument("--packages", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    releases = installed(options.packages)
    site = str(Path(importlib.util.find_spec("tenon").origin).parent.parent)
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = reference_path(folder)
        if path is None:
            print("PyTorch is not installed: jobs are run, their numbers not compared")
        for job in sorted((HERE / "jobs").glob("use_*.py")):
            name = job.stem.removeprefix("use_")
            if options.only and name not in options.only:
                continue
            got, fault = run([options.packages, "-m", "tenon", "run"], job, [site])
            if path is not None and not fault:
                want, broken = run([options.packages], job, path)
                fault = f"with PyTorch: {broken}" if broken else differs(got, want)
            count = sum(len(numbers) for *_, numbers in got)
            rows.append((name, releases.get(NAMES.get(name, name), "?"), count, fault))
            print(f"{name:24} {count:6} {fault or 'same'}", flush=True)
    if options.write:
        table = written() if options.only else {}
        table |= {row[0]: row for row in rows}
        PAGE.write_text(page([table[name] for name in sorted(table)], torch), encoding="utf-8")
    return any(fault for *_, fault in rows)


if __name__ == "__main__":
    sys.exit(main())
