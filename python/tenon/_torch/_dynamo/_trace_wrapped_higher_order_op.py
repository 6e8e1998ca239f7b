"""The mode under which masks of attention are mapped over positions."""

from __future__ import annotations

from tenon._tape.call_modes import BaseTorchFunctionMode


class TransformGetItemToIndex(BaseTorchFunctionMode):
    """Reads of single elements at mapped positions, which `vmap` takes with or without it."""
