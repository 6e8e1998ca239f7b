"""The counter of arithmetic operations, as far as packages make one without counting."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """A counter that has counted nothing: entering it, which would, raises.

    What the core calls by itself, in a backward pass for one, is seen by no mode, so that a count
    would be too low.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        self.depth, self.display = depth, display
        del mods, custom_mapping

    def get_total_flops(self) -> int:
        """The operations that were counted."""
        return 0

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The same by module and operator."""
        return {}

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            "torch.utils.flop_counter.FlopCounterMode: Tenon does not count operations yet"
        )

    def __exit__(self, *exc: object) -> None:
        """Entering never succeeds."""
