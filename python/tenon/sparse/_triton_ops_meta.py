"""What packages ask about tuned kernels of Triton, of which there are none here."""

from __future__ import annotations

from typing import Any


def get_meta(
    op: str, key: Any, device_name: Any = None, version: Any = (0, None, 0.5), exact: bool = False
) -> Any:
    """Parameters of a kernel; None: nobody has tuned it."""
    del op, key, device_name, version, exact


def minimize(target_func: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("there are no kernels of Triton to tune")


def update(op: str, device_name: Any, version: Any, key: Any, value: Any) -> None:
    raise NotImplementedError("there are no kernels of Triton to tune")
