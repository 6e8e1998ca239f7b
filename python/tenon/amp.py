"""Mixed precision. Casting by operator is not there yet; a disabled autocast may be used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["GradScaler", "autocast"]


class autocast:  # noqa: N801 - PyTorch's name
    """A with statement inside which some operators compute in a shorter dtype.

    enabled=False is accepted everywhere; enabled=True is not there yet and says so.
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device_type = device_type
        self.dtype = dtype
        self.enabled = enabled and device_type != "cuda"

    def __enter__(self) -> autocast:
        if self.enabled:
            raise NotImplementedError(
                "autocast is not there yet; convert the model and its inputs with "
                ".to(bfloat16), or pass enabled=False"
            )
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return wrapper


class GradScaler:
    """Scales losses for float16 gradients on a GPU; on the CPU it passes them through."""

    def __init__(self, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        self._enabled = False

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """The factor."""
        return 1.0

    def scale(self, outputs: Any) -> Any:
        """The outputs times the factor."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Divides gradients by the factor."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Chooses the next factor."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing, while it is disabled."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to take over, while it is disabled."""
