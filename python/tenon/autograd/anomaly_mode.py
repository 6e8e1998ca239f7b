"""Anomaly mode: a failing backward names the forward operator and the line that called it."""

from __future__ import annotations

from typing import Any

from tenon import _C

_ON, _CHECK_NAN = 1, 2


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return bool(_C._get_anomaly() & _ON)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients that are NaN are failures."""
    return not is_anomaly_enabled() or bool(_C._get_anomaly() & _CHECK_NAN)


class set_detect_anomaly:
    """Switches anomaly mode at once; as a context manager it comes back afterwards."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._old = _C._set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        _C._set_anomaly(bool(self._old & _ON), bool(self._old & _CHECK_NAN))


class detect_anomaly(_C._Region):
    """Anomaly mode inside a with statement."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan

    def _region(self) -> tuple[Any, ...]:
        old = _C._get_anomaly()
        before = (bool(old & _ON), bool(old & _CHECK_NAN))
        return _C._set_anomaly, (True, self._check_nan), _C._set_anomaly, before
