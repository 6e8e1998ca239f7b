"""Environment variables and folders of the user. As in the core, a process with elevated rights
takes no variable from whoever started it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def elevated() -> bool:
    """Whether the process has rights that its user has not, as set-user-ID programs have."""
    return os.getuid() != os.geteuid() or os.getgid() != os.getegid()


def variable(name: str) -> str:
    """A variable's value; "" when it is not set or must not be believed."""
    return "" if elevated() else os.environ.get(name, "")


def home() -> Path:
    """The folder of the user whose rights the process has."""
    if elevated():
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    return Path(os.path.expanduser("~"))


def _folder(name: str, fallback: str) -> Path:
    named = variable(name)  # relative ones are to be ignored, says the convention
    return Path(named) if named.startswith("/") else home() / fallback


def config_folder() -> Path:
    """Where the user's settings are."""
    return _folder("XDG_CONFIG_HOME", ".config")


def cache_folder() -> Path:
    """Where files are that can be made again."""
    return _folder("XDG_CACHE_HOME", ".cache")
