"""How much memory this process has in use."""

from __future__ import annotations

import os


def resident() -> int:
    """Bytes of this process that are in memory now.

    Not the peak of `resource.getrusage`, which begins as the parent's and hides all growth below
    an earlier peak.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
