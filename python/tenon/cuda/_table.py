"""The table "tenon.cuda/1" of the CUDA plugin (backends/cuda/cuda_priv.h)."""

from __future__ import annotations

import ctypes as c


class Settings(c.Structure):
    """cuda_settings_iface."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("allow_tf32", c.CFUNCTYPE(None, c.c_int32)),
        ("is_tf32_allowed", c.CFUNCTYPE(c.c_int32)),
        ("libraries", c.CFUNCTYPE(c.c_char_p)),
    ]
