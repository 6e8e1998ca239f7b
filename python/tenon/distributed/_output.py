"""Where a launcher's processes write: to its own streams, to files, or to both, as torchrun's
--redirects, --tee and --log-dir say."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

__all__: list[str] = []

_OUT, _ERR = 1, 2


def streams(name: str, text: str | None, size: int) -> list[int]:
    """Which streams of each rank an option names: 0 none, 1 stdout, 2 stderr, 3 both; for all of
    them ("3") or by rank ("0:3,1:1")."""
    found = [0] * size
    for part in (text or "0").split(","):
        rank, given, what = part.rpartition(":")
        try:
            which, ranks = int(what), [int(rank)] if given else range(size)
        except ValueError:
            which, ranks = -1, range(0)
        if not 0 <= which <= _OUT + _ERR or any(not 0 <= r < size for r in ranks):
            raise SystemExit(
                f"launch: --{name}: expected 0 to 3, or RANK:0 to RANK:3 separated by commas, of "
                f"{size} ranks, got {text!r}"
            )
        for r in ranks:
            found[r] = which
    return found


class Outputs:
    """What the processes of one start write: their streams, and their errors, which are in memory
    of the launcher. The files of a rank are FOLDER/RANK/stdout.log and stderr.log."""

    def __init__(self, folder: Path, redirects: list[int], tee: list[int], role: str) -> None:
        self.folder, self.redirects, self.tee, self.role = folder, redirects, tee, role
        self._files: list[IO[bytes]] = []
        self._copying: list[threading.Thread] = []
        self._errors = [os.memfd_create("tenon-error", os.MFD_CLOEXEC) for _ in tee]

    def error_file(self, rank: int) -> Path:
        """Where `elastic.multiprocessing.errors.record` writes the error of a rank."""
        return Path(f"/proc/{os.getpid()}/fd/{self._errors[rank]}")

    def _log(self, rank: int, name: str) -> Path:
        return self.folder / str(rank) / f"{name}.log"

    def options(self, rank: int) -> dict[str, Any]:
        """What a process is started with: files where its streams go."""
        wanted, found = self.redirects[rank] | self.tee[rank], {}
        for bit, name in ((_OUT, "stdout"), (_ERR, "stderr")):
            if wanted & bit:
                log = self._log(rank, name)
                log.parent.mkdir(parents=True, exist_ok=True)
                found[name] = log.open("wb")
                self._files.append(found[name])
        return found

    def follow(self, rank: int, process: Any) -> None:
        """Copies what a process writes to the launcher's streams, a line at a time."""
        for bit, name in ((_OUT, "stdout"), (_ERR, "stderr")):
            if self.tee[rank] & bit:
                self._copying.append(
                    threading.Thread(target=self._copy, args=(rank, name, process), daemon=True)
                )
                self._copying[-1].start()

    def _copy(self, rank: int, name: str, process: Any) -> None:
        target, start = getattr(sys, name), f"[{self.role}{rank}]:"
        with self._log(rank, name).open(errors="replace") as file:
            ended = False
            while True:
                line = file.readline()
                if line:
                    target.write(start + line + ("" if line.endswith("\n") else "\n"))
                    target.flush()
                elif ended:
                    return
                else:
                    time.sleep(0.05)
                    ended = process.poll() is not None

    def close(self) -> None:
        """Called once the processes have ended."""
        for thread in self._copying:
            thread.join()
        for file in self._files:
            file.close()
        while self._errors:
            os.close(self._errors.pop())
