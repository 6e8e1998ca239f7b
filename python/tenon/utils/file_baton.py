"""A file that only one process at a time has made: who builds something while others wait."""

from __future__ import annotations

import os
import time
import warnings

__all__ = ["FileBaton"]


class FileBaton:
    """Held by whoever made the file. `warn_after_seconds` of waiting warn once."""

    def __init__(
        self,
        lock_file_path: str,
        wait_seconds: float = 0.1,
        warn_after_seconds: float | None = None,
    ) -> None:
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Takes the baton, unless somebody has it."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Waits until nobody has it."""
        start, warned = time.monotonic(), self.warn_after_seconds is None
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if not warned and time.monotonic() - start > (self.warn_after_seconds or 0):
                warned = True
                warnings.warn(
                    f"Waited on lock file {self.lock_file_path!r} for more than "
                    f"{self.warn_after_seconds} seconds.",
                    stacklevel=2,
                )

    def release(self) -> None:
        """Gives it back."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        os.remove(self.lock_file_path)
