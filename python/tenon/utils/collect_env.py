"""What a report of a fault should say of the machine: `python -m tenon.utils.collect_env`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

import tenon

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "pretty_str"]
_PACKAGES = ("numpy", "tenon", "torch", "safetensors", "triton", "mypy", "onnx", "scipy")


class SystemEnv(NamedTuple):
    """The facts, by PyTorch's names where it has one."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    gcc_version: str | None
    libc_version: str
    python_version: str
    python_platform: str
    os: str
    is_cuda_available: str
    cpu_info: str
    threads: int
    cpu_features: str
    plugins: list[str]
    pip_packages: str


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.partition("\n")[0] or None


def _fact(file: str, key: str, mark: str) -> str:
    """A value of a file of lines `key<mark>value`."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        name, _, value = line.partition(mark)
        if name.strip() == key:
            return value.strip().strip('"')
    return ""


def get_env_info() -> SystemEnv:
    """Looks at the machine."""
    found = {d.name.lower(): d.version for d in distributions() if d.name}
    return SystemEnv(
        torch_version=tenon.__version__,
        is_debug_build="False",
        cuda_compiled_version=str(tenon.version.cuda),
        gcc_version=_first_line(["gcc", "--version"]),
        libc_version="-".join(platform.libc_ver()),
        python_version=f"{sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
        python_platform=platform.platform(),
        os=_fact("/etc/os-release", "PRETTY_NAME", "=") or platform.system(),
        is_cuda_available=str(tenon.cuda.is_available()),
        cpu_info=_fact("/proc/cpuinfo", "model name", ":") or platform.processor(),
        threads=tenon.get_num_threads(),
        cpu_features=str(tenon.backends.cpu.get_cpu_capability()),
        plugins=[f"{p['name']} ({'in use' if p['active'] else 'not loaded'})"
                 for p in tenon.plugins()],
        pip_packages="\n".join(f"{n}=={found[n]}" for n in _PACKAGES if n in found),
    )  # fmt: skip


def pretty_str(info: Any) -> str:
    """The facts as text."""
    packages = "\n".join(f"[pip3] {line}" for line in info.pip_packages.splitlines())
    return f"""Tenon version: {info.torch_version}
Is debug build: {info.is_debug_build}
CUDA used to build: {info.cuda_compiled_version}

OS: {info.os}
GCC version: {info.gcc_version}
Libc version: {info.libc_version}

Python version: {info.python_version}
Python platform: {info.python_platform}
Is CUDA available: {info.is_cuda_available}

CPU: {info.cpu_info} ({os.cpu_count()} processors, {info.threads} threads, {info.cpu_features})
Plugins: {", ".join(info.plugins) or "none"}

Versions of relevant libraries:
{packages}"""


def get_pretty_env_info() -> str:
    """What `main` prints."""
    return pretty_str(get_env_info())


def main() -> None:
    """Prints the facts."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
