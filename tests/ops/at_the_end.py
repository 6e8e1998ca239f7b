"""Calls every operator with operands whose memory ends where a page does, and the next page cannot
be read: a kernel that reads a vector beyond them ends the process. `test_guarded_memory.py` starts
it.

    python at_the_end.py FILE FIRST STEP     rows FIRST, FIRST + STEP, ...; FILE gets the last call
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tenon as tn
from table import call, make_case, rows, tensor_args

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PAGE = mmap.PAGESIZE
# How the last dimension of all arguments is made longer: times and plus.
LENGTHS = ((1, 0), (1, 3), (9, 0), (9, 1))


def guarded(t: Any) -> Any:
    """The same tensor at the end of readable memory."""
    if not isinstance(t, tn.Tensor) or not t.numel() or not t.is_contiguous():
        return t
    if t.dtype == tn.bfloat16:  # NumPy has none
        return guarded(t.view(tn.int16)).view(tn.bfloat16)
    array = t.detach().numpy()
    room = -(-array.nbytes // PAGE) * PAGE
    pages = mmap.mmap(-1, room + PAGE)
    view = memoryview(pages)[room - array.nbytes : room]
    placed = np.frombuffer(view, array.dtype).reshape(array.shape)
    placed[...] = array
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if libc.mprotect(start + room, PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return tn.from_numpy(placed)


def longer(sample: dict[str, Any], times: int, plus: int) -> dict[str, Any]:
    def changed(v: Any) -> Any:
        shape = isinstance(v, list) and v and all(type(n) is int and n > 0 for n in v)
        return [*v[:-1], v[-1] * times + plus] if shape else v

    return {name: changed(v) for name, v in sample.items()}


def calls(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for dtype in row["dtypes"]:
        for sample in row["samples"]:
            for times, plus in LENGTHS:
                yield dtype, longer(sample, times, plus)


def main(file: str, first: int, step: int) -> None:
    warnings.simplefilter("ignore")
    done = 0
    with open(file, "w", encoding="utf-8") as last:
        for row in [r for r in rows() if r["samples"] and r["name"] != "index"][first::step]:
            for dtype, sample in calls(row):
                last.seek(0)
                last.write(f"{row['name']} {dtype} {sample}\n")
                last.truncate()
                last.flush()
                try:
                    args = tensor_args(make_case(row, sample, dtype))
                    given = {
                        k: [guarded(x) for x in v] if isinstance(v, list) else guarded(v)
                        for k, v in args.items()
                    }
                    call(row, given)
                    done += 1
                except Exception:  # arguments that do not go together once they are longer
                    continue
    print(done)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
