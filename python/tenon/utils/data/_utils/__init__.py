"""Parts of DataLoader, by the names that packages import them from."""

import atexit
import importlib.util
import sys
from typing import Any

from tenon.utils.data._utils import collate, fetch, pin_memory, signal_handling, worker
from tenon.utils.data._utils.worker import MP_STATUS_CHECK_INTERVAL

__all__ = [
    "MP_STATUS_CHECK_INTERVAL", "collate", "fetch", "pin_memory", "signal_handling", "worker",
]  # fmt: skip

IS_WINDOWS = sys.platform == "win32"
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
python_exit_status: Any = False  # whether the interpreter is on its way out


def _set_python_exit_flag() -> None:
    global python_exit_status
    python_exit_status = True


atexit.register(_set_python_exit_flag)
