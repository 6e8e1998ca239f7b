"""Errors of processes that a launcher has started."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]


@dataclass
class ProcessFailure:
    """How one process has ended: its error is in a file where it could write one."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False, default_factory=dict)
    message: Any = field(init=False, default="")
    timestamp: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.timestamp = int(time.time())
        try:
            self.error_file_data = json.loads(Path(self.error_file).read_text())
            self.message = self.error_file_data["message"]
            if isinstance(self.message, dict):
                self.timestamp = int(self.message["extraInfo"]["timestamp"])
        except (OSError, ValueError, KeyError, TypeError):
            self.message = self._end()

    def _end(self) -> str:
        if self.exitcode < 0:
            return f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"

    def signal_name(self) -> str:
        """The signal that has ended it."""
        if self.exitcode >= 0:
            return "<N/A>"
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return "<INVALID_SIGNAL_NO>"

    def timestamp_isoformat(self) -> str:
        """When it ended."""
        return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(self.timestamp))


class ChildFailedError(Exception):
    """Processes that a launcher has started have failed; `failures` says by rank how."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise ValueError("ChildFailedError needs a failure at least")
        self.name, self.failures = name, failures
        rank, first = self.get_first_failure()
        super().__init__(
            f"{name} FAILED: rank {rank} (local rank {first.local_rank}, process {first.pid}) "
            f"ended with exit code {first.exitcode}: {first.message}"
        )

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """(rank, how it ended) of the process that failed first."""
        return min(self.failures.items(), key=lambda item: item[1].timestamp)


class ErrorHandler:
    """Writes the error of this process to the file that TORCHELASTIC_ERROR_FILE names."""

    def initialize(self) -> None:
        """Called before the program's function."""

    def record_exception(self, e: BaseException) -> None:
        """Writes the error."""
        file = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not file:
            return
        message = {
            "message": f"{type(e).__name__}: {e}",
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(e)),
                "timestamp": str(int(time.time())),
                "host": socket.gethostname(),
            },
        }
        Path(file).write_text(json.dumps({"message": message}))


def get_error_handler() -> ErrorHandler:
    """What `record` uses."""
    return ErrorHandler()


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """A function whose errors are written for the launcher, too."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit:
            raise
        except BaseException as e:
            handler.record_exception(e)
            raise

    return run
