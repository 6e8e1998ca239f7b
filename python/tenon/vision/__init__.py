"""Pictures: transforms, models, data sets of local files, operators on boxes.

The names are torchvision's; `tenon run` serves this package under its name where that one is not
installed. Pictures are tensors or Pillow's images.
"""

from __future__ import annotations

from tenon._submodules import on_demand

__version__ = "0.28.0+tenon"


def get_image_backend() -> str:
    """The library that reads pictures."""
    return "PIL"


def set_image_backend(backend: str) -> None:
    """Pillow reads pictures; there is no other."""
    if backend != "PIL":
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL'")


def disable_beta_transforms_warning() -> None:
    """There is no such warning."""


on_demand(globals())
