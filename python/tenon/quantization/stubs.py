"""The older place of `ao.quantization.stubs`."""

from tenon.ao.quantization.stubs import *  # noqa: F403
