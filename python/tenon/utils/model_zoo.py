"""The old names of what is in `hub`."""

from tenon.hub import load_state_dict_from_url

load_url = load_state_dict_from_url

__all__ = ["load_url"]
