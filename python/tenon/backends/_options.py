"""Numbers that the CUDA plugin goes by.

They may be set before a GPU is used: the plugin takes them from environment variables when it is
loaded, so that a program that never uses one may still fork.
"""

from __future__ import annotations

import os


def get(variable: str, default: int) -> int:
    """The value of an option; what is no number counts as the default."""
    try:
        return int(os.environ.get(variable, default))
    except ValueError:
        return default


def put(name: str, variable: str, value: int) -> None:
    """Sets it, for a plugin that is in use and for one that is loaded later."""
    import tenon

    os.environ[variable] = str(int(value))
    if any(p["name"] == "tenon-cuda" and p["active"] for p in tenon.plugins()):
        tenon.cuda._settings().set_option(name.encode(), int(value))
