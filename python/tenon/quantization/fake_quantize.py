"""The older place of `ao.quantization.fake_quantize`."""

from tenon.ao.quantization.fake_quantize import *  # noqa: F403
