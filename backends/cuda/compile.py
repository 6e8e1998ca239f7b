"""Compiles one kernel source with nvcc: `compile.py NVCC SOURCE OUTPUT [options...]`.

OUTPUT is a fat binary; beside it, OUTPUT.log gets what each kernel uses: registers, spills, shared
memory. The options that all kernels share are asked for once, `compile.py --flags NVCC ARCHS`,
one per line: what ARCHS means, and compression as far as this nvcc can. ARCHS is "dev" (that of
this machine's GPU, or else 80, and its PTX), "all" (every one that this nvcc knows from 75 on, and
PTX of the newest) or a list like "80,90".
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 75
DEV = 80


def known(nvcc: str) -> list[int]:
    """The architectures that this nvcc compiles for."""
    done = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True)
    return sorted({int(n) for n in re.findall(r"sm_(\d+)\b", done.stdout) if int(n) >= OLDEST})


def present() -> list[int]:
    """The architecture of the first GPU of this machine."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.match(r"(\d+)\.(\d)", done.stdout)
    return [int(found[1] + found[2])] if found and done.returncode == 0 else []


def compression(nvcc: str) -> list[str]:
    """An eighth of the size; nvcc knows the option from 12.8 on."""
    done = subprocess.run([nvcc, "--help"], capture_output=True, text=True)
    return ["--compress-mode=size"] if "--compress-mode" in done.stdout else []


def targets(nvcc: str, archs: str) -> list[str]:
    wanted = {"dev": lambda: present() or [DEV], "all": lambda: known(nvcc)}.get(
        archs, lambda: [int(a) for a in archs.split(",")]
    )()
    flags = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in wanted[:-1]]
    last = wanted[-1]
    return [*flags, f"-gencode=arch=compute_{last},code=[sm_{last},compute_{last}]"]


def build(nvcc: str, source: str, output: str, *options: str) -> int:
    command = [nvcc, "-fatbin", "-c", "-std=c++17", "--fmad=false", "--resource-usage"]
    command += ["-MD", "-MF", f"{output}.d", "-MT", output, *options]
    ccache = shutil.which("ccache")
    if ccache:
        command.insert(0, ccache)
    done = subprocess.run([*command, source, "-o", output], capture_output=True, text=True)
    log = done.stdout + done.stderr
    Path(f"{output}.log").write_text(log, encoding="utf-8")
    if done.returncode != 0:
        print(log, file=sys.stderr)
    return done.returncode


def main(first: str, *rest: str) -> int:
    if first != "--flags":
        return build(first, *rest)
    nvcc, archs = rest
    print("\n".join([*compression(nvcc), *targets(nvcc, archs)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
