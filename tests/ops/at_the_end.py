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
# Products of blocks and of few rows or columns.
SIZES = (
    (121, 97, 131), (65, 130, 513), (300, 65, 70), (41, 640, 257),
    (1, 97, 33), (5, 73, 70), (13, 7, 1100), (7, 300, 129),
)  # fmt: skip
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


def laid(t: tn.Tensor) -> list[tn.Tensor]:
    """A matrix whose rows are packed, whose columns are, that ends rows and that ends columns."""
    whole = t.view(tn.int16) if t.dtype == tn.bfloat16 else t
    # By NumPy: what is turned around wrongly twice may be right.
    turned = tn.from_numpy(np.ascontiguousarray(whole.numpy().T)).view(t.dtype)
    return [
        guarded(t),
        guarded(turned).mT,
        guarded(tn.cat([t, t], 1))[:, t.shape[1] :],
        guarded(tn.cat([turned, turned], 1))[:, t.shape[0] :].mT,
    ]


def matrices() -> Iterator[str]:
    """Products and copies from and to every layout; what is called next."""
    for m, n, k in SIZES:
        for dtype in (tn.float32, tn.float64, tn.float16, tn.bfloat16, tn.int32):
            yield f"mm {dtype} {m} {n} {k}"
            left, right = laid(tn.ones(m, k, dtype=dtype)), laid(tn.ones(k, n, dtype=dtype))
            for i, out in enumerate(laid(tn.zeros(m, n, dtype=dtype))):
                for a in left:
                    for b in right[i % 2 :: 2]:
                        tn.mm(a, b, out=out)
                        assert (out == k).all()
    for m, n in (1, 1), (3, 5), (4, 9), (8, 12), (17, 33), (37, 29), (64, 64), (100, 70):
        for dtype in (tn.uint8, tn.int16, tn.float32, tn.float64, tn.complex128):
            yield f"copy {dtype} {m} {n}"
            values = tn.arange(m * n).reshape(m, n).to(dtype)
            for x in laid(values):
                for out in laid(tn.zeros(m, n, dtype=dtype)):
                    assert np.array_equal(out.copy_(x).numpy(), values.numpy())


def main(file: str, first: int, step: int) -> None:
    warnings.simplefilter("ignore")
    done = 0
    with open(file, "w", encoding="utf-8") as last:
        for name in matrices() if first == 0 else ():
            last.seek(0)
            last.write(f"{name}\n")
            last.truncate()
            last.flush()
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
