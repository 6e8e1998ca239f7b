"""What DLPack's producers say that cannot be."""

from __future__ import annotations

import ctypes

import pytest
import tenon


@pytest.mark.parametrize("place", [tenon.Tensor, [1, 0], None, (1,), (1, 0, 0), (2**40, 0)])
def test_dlpack_of_a_device_that_is_none(place: object) -> None:
    class Lies:
        def __dlpack__(self, **options: object) -> object:
            return tenon.ones(2).__dlpack__()

        def __dlpack_device__(self) -> object:
            return place

    with pytest.raises((TypeError, OverflowError), match="__dlpack_device__|tuple|greater"):
        tenon.from_dlpack(Lies())


def test_dlpack_of_an_offset_outside_of_memory() -> None:
    capsule = tenon.ones(3).__dlpack__()
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    offset = ctypes.c_uint64.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor") + 40)
    assert offset.value == 0
    for offset.value in (2**63, 2**64 - 1, 2**64 - 4):
        with pytest.raises(BufferError, match="outside of the address space"):
            tenon.from_dlpack(capsule)
    offset.value = 0
    assert tenon.from_dlpack(capsule).tolist() == [1, 1, 1]
