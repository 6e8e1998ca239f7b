"""Says in one line what installing the package is about to do: `announce.py CPU_SECONDS TEXT`.

pip shows nothing of a build, which then seems to hang for minutes. The line goes to the standard
output, which Meson logs, and to the terminal of whoever waits, if there is one.
"""

from __future__ import annotations

import os
import sys


def to_terminal(line: str) -> None:
    """Only where this process group is in the terminal's foreground: another would be stopped."""
    try:
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return
    try:
        if os.tcgetpgrp(terminal) == os.getpgrp():
            os.write(terminal, f"\r{line}\n".encode())
    except OSError:
        pass
    finally:
        os.close(terminal)


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def line_of(cpu_seconds: float, text: str, n: int) -> str:
    minutes = max(round(cpu_seconds / n / 30) / 2, 0.5)
    units = "minute" if minutes <= 1 else "minutes"
    return f"tenon: {text}, about {minutes:g} {units} on {n} {'core' if n == 1 else 'cores'}"


if __name__ == "__main__":
    said = line_of(float(sys.argv[1]), sys.argv[2], cores())
    print(said)
    if not sys.stdout.isatty():
        to_terminal(said)
