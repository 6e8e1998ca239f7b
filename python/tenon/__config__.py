"""What the library was built with, as text."""

from __future__ import annotations

from tenon import _C, get_num_threads
from tenon._plugin.native import Library


def show() -> str:
    """The version, the CPU's kernels and the plugins."""
    library = Library()
    lines = [f"Tenon {_C._version}", f"  - {library.describe('cpu')}"]
    lines += [f"  - plugin {p.name} {p.version}" for p in library.plugins()]
    return "\n".join(lines) + "\n"


def parallel_info() -> str:
    """How many threads compute."""
    return f"threads of the CPU backend: {get_num_threads()}\n"
