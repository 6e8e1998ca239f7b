"""The module in which PyTorch keeps process groups and their operations, by its name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tenon import distributed
from tenon.distributed import *  # noqa: F403 - the very same names
from tenon.distributed._collectives import _outside
from tenon.distributed._groups import (
    GroupMember,
    ProcessGroup,
    _group,
    _seconds,
    default_store,
    is_xccl_available,  # noqa: F401 - packages look for it here
)
from tenon.distributed.constants import default_pg_timeout  # noqa: F401

__all__ = list(distributed.__all__)

_rank_not_in_group = _outside


def _get_default_group() -> ProcessGroup:
    """The group of all processes."""
    return _group(None)


def _get_default_store() -> Any:
    """A store that all processes share."""
    return default_store()


def _get_pg_default_device(group: Any = None) -> Any:
    """The device that objects travel through."""
    import tenon

    _group(group)
    return tenon.device("cpu")


def _set_pg_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
    """How long the group's next operations may wait for its ranks."""
    if timeout is None:
        raise TypeError("_set_pg_timeout: expected a timedelta, got None")
    _group(group)._seconds = _seconds(timeout)


def _get_process_group_name(group: ProcessGroup) -> str:
    """What the group is called."""
    return _group(group).group_name


def _is_default(group: Any) -> bool:
    return group is None or group is GroupMember.WORLD


def _resolve_process_group(name: str) -> ProcessGroup:
    """The group of a name."""
    from tenon.distributed._groups import _state

    for group in _state.groups:
        if group.group_name == name:
            return group
    raise RuntimeError(f"Could not resolve the process group registered under the name {name}")
