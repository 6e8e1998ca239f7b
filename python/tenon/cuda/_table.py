"""The tables of the CUDA plugin (backends/cuda/tables.h)."""

from __future__ import annotations

import ctypes as c


class Settings(c.Structure):
    """cuda_settings_iface, "tenon.cuda/1"."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("allow_tf32", c.CFUNCTYPE(None, c.c_int32)),
        ("is_tf32_allowed", c.CFUNCTYPE(c.c_int32)),
        ("libraries", c.CFUNCTYPE(c.c_char_p)),
        ("set_option", c.CFUNCTYPE(None, c.c_char_p, c.c_int32)),
        ("option", c.CFUNCTYPE(c.c_int32, c.c_char_p)),
        ("cudnn_version", c.CFUNCTYPE(c.c_int32)),
    ]


class Block(c.Structure):
    """cuda_block_info."""

    _fields_ = [
        *(
            (name, c.c_uint64)
            for name in ("segment", "segment_bytes", "stream", "address", "bytes")
        ),
        ("asked", c.c_uint64),
        ("state", c.c_uint32),
        ("flags", c.c_uint32),
    ]


class Runtime(c.Structure):
    """cuda_runtime_iface, "tenon.cuda.runtime/1"."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("property", c.CFUNCTYPE(c.c_int32, c.c_int32, c.c_char_p, c.POINTER(c.c_int64))),
        ("name", c.CFUNCTYPE(c.c_char_p, c.c_int32)),
        ("memory_info", c.CFUNCTYPE(c.c_int32, c.c_int32, *[c.POINTER(c.c_int64)] * 2)),
        ("memory_snapshot", c.CFUNCTYPE(c.c_uint64, c.c_int32, c.POINTER(Block), c.c_uint64)),
        ("memory_counts", c.CFUNCTYPE(None, c.c_int32, *[c.POINTER(c.c_uint64)] * 2)),
        ("set_memory_limit", c.CFUNCTYPE(c.c_int32, c.c_int32, c.c_uint64)),
        ("can_access_peer", c.CFUNCTYPE(c.c_int32, c.c_int32, c.c_int32, c.POINTER(c.c_int32))),
        ("counter_name", c.CFUNCTYPE(c.c_char_p, c.c_int32)),
        ("counter", c.CFUNCTYPE(c.c_uint64, c.c_int32, c.c_int32)),
        ("reset_counters", c.CFUNCTYPE(None, c.c_int32)),
        ("is_started", c.CFUNCTYPE(c.c_int32)),
        ("range_push", c.CFUNCTYPE(c.c_int32, c.c_char_p)),
        ("range_pop", c.CFUNCTYPE(c.c_int32)),
        ("mark", c.CFUNCTYPE(None, c.c_char_p)),
        ("range_start", c.CFUNCTYPE(c.c_uint64, c.c_char_p)),
        ("range_end", c.CFUNCTYPE(None, c.c_uint64)),
    ]


Words = c.c_uint32 * 3


class Kernels(c.Structure):
    """cuda_kernel_iface."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        (
            "compile",
            c.CFUNCTYPE(
                c.c_int32,
                c.c_int32,
                c.c_char_p,
                c.c_char_p,
                c.POINTER(c.c_char_p),
                c.c_int32,
                c.POINTER(c.c_void_p),
                c.c_char_p,
                c.c_uint64,
            ),
        ),
        (
            "launch",
            c.CFUNCTYPE(
                c.c_int32,
                c.c_int32,
                c.c_void_p,
                c.POINTER(c.c_uint32),
                c.POINTER(c.c_uint32),
                c.c_uint32,
                c.c_void_p,
                c.POINTER(c.c_void_p),
            ),
        ),
    ]
