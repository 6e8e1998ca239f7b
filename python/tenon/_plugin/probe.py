"""Loads a plugin, after others: `probe.py LIBTENON PLUGIN BEFORE...`, in a process that may die or
hang. It stands alone, so that it starts fast and imports nothing of the package."""

import ctypes
import json
import sys


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("arg", ctypes.c_int32),
        ("op", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
    ]


def main(libtenon: str, plugin: str, *before: str) -> None:
    lib = ctypes.CDLL(libtenon)
    lib.tn_error_last.restype = ctypes.POINTER(Error)
    for path in before:
        lib.tn_plugin_load(path.encode())
    status = lib.tn_plugin_load(plugin.encode())
    problem = lib.tn_error_last().contents.message.decode(errors="replace") if status else ""
    print("tenon-probe:" + json.dumps(problem), flush=True)


main(*sys.argv[1:])
