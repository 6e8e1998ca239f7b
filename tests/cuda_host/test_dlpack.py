"""Memory of CUDA that goes from one library to another by DLPack, without a copy."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_memory_is_taken_over_as_it_lies() -> None:
    harness.script("""
class Lent:  # a library that knows CUDA before we have looked for it
    def __init__(self, t):
        self.t, self.asked = t, []
    def __dlpack_device__(self):
        return self.t.__dlpack_device__()
    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.t.__dlpack__(**options)
x = tn.arange(24.0).reshape(4, 6).to("cuda")
lent = Lent(x.t()[1:, ::2])
y = tn.from_dlpack(lent)
assert lent.asked == [{"stream": 1, "max_version": (1, 0)}]
assert y.device == x.device and y.shape == (5, 2) and y.stride() == (1, 12)
y += 100
assert x[0].tolist() == [0, 101, 102, 103, 104, 105] and x[1, 1] == 7
del x, lent
assert y.sum().item() == 5 * 2 * 100 + sum(range(1, 6)) + sum(range(13, 18))
whole = tn.utils.dlpack.from_dlpack(tn.utils.dlpack.to_dlpack(y))
assert whole.data_ptr() == y.data_ptr()
""")


def test_both_sides_wait_for_the_streams_of_the_other() -> None:
    harness.script("""
side = tn.cuda.Stream()
class Lent:
    def __init__(self, t):
        self.t, self.asked = t, None
    def __dlpack_device__(self):
        return self.t.__dlpack_device__()
    def __dlpack__(self, *, stream=None):  # one of before versions
        self.asked = stream
        return self.t.__dlpack__(stream=stream)
lent = Lent(tn.ones(100, device="cuda"))
side.wait_stream(tn.cuda.current_stream())  # it was made in another one than it is lent in
with tn.cuda.stream(side):
    y = tn.from_dlpack(lent)
    assert lent.asked == side.cuda_stream
    waits = tn.cuda.counters()["waits"]
    y += 1
    y.__dlpack__(stream=side.cuda_stream)
    y.__dlpack__(stream=-1)
    assert tn.cuda.counters()["waits"] == waits
    y.__dlpack__(stream=1)
    assert tn.cuda.counters()["waits"] == waits + 1
assert lent.t.tolist() == [2.0] * 100
for stream in (None, 0, 1):
    tn.ones(3, device="cuda").__dlpack__(stream=stream)
try:
    tn.ones(3, device="cuda").__dlpack__(stream="one")
except TypeError:
    pass
else:
    raise AssertionError("a text is no stream")
""")


def test_memory_of_devices_that_are_not_here_is_refused() -> None:
    harness.script("""
import ctypes as c
new, name = c.pythonapi.PyCapsule_GetPointer, b"dltensor"
new.restype, new.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
for kind, index in ((2, 99), (2, -1), (7, 0), (12, 0)):
    capsule = tn.ones(3).__dlpack__()
    place = (c.c_int32 * 2).from_address(new(capsule, name) + 8)
    place[0], place[1] = kind, index
    try:
        tn.from_dlpack(capsule)
    except BufferError as error:
        assert f"DLPack device {kind}" in str(error)
    else:
        raise AssertionError(kind)
    place[0], place[1] = 1, 0
""")
