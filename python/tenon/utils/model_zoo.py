"""The old names of what is in `hub`."""

from typing import Any

from tenon import hub
from tenon.hub import load_state_dict_from_url

load_url = load_state_dict_from_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    """`tqdm`, which torchvision takes from here."""
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return hub.tqdm
