"""The older place of `ao.quantization.fuse_modules`."""

from tenon.ao.quantization.fuse_modules import *  # noqa: F403
