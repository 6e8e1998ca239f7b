"""The older place of `ao.quantization.quantize_fx`."""

from tenon.ao.quantization.quantize_fx import *  # noqa: F403
