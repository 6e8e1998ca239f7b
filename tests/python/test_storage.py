"""Storages as objects, and what pickles and copies keep of the memory behind tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import stored
import tenon
from refusals import check_beside

VIEWS = [
    lambda x: x, lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.expand(2, 3, 4),
    lambda x: x.t()[1:], lambda x: x[1:, 1:3], lambda x: x[1, 2], lambda x: x[:0],
]  # fmt: skip
WAYS = [
    copy.copy,
    copy.deepcopy,
    lambda t: pickle.loads(pickle.dumps(t)),
]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("way", WAYS)
def test_copies_keep_strides(view, way):
    t = view(tenon.arange(12.0).view(3, 4))
    twin = way(t)
    assert twin.stride() == t.stride() and twin.shape == t.shape and twin.equal(t)


def test_copies_share_what_they_should():
    x = tenon.zeros(2, 3, requires_grad=True)
    x.note = "text"
    same = copy.copy(x)
    same.data[0, 1] = 5
    assert x[0, 1] == 5 and same.requires_grad and same.is_leaf and same.note == "text"
    p = tenon.nn.Parameter(tenon.zeros(2))
    assert type(copy.copy(p)) is tenon.nn.Parameter and copy.copy(p).data_ptr() == p.data_ptr()
    y = tenon.zeros(4)
    a, b, s = copy.deepcopy([y[:3], y[2:], y.untyped_storage()])
    a[2] = 7
    assert b[0] == 7 and y[2] == 0 and s.data_ptr() == a.data_ptr()


def test_generators_are_copied_with_their_state():
    g = tenon.Generator().manual_seed(5)
    tenon.rand(3, generator=g)
    twins = [way(g) for way in WAYS] + [g.clone_state()]
    want = tenon.rand(4, generator=g)
    for twin in twins:
        assert twin.initial_seed() == 5 and tenon.rand(4, generator=twin).equal(want)


def test_storages_look_at_the_memory():
    x = tenon.arange(6, dtype=tenon.int16)
    raw, typed = x.untyped_storage(), x[2:].storage()
    assert bytes(raw.tolist()) == x.numpy().tobytes() and len(raw) == raw.nbytes() == 12
    assert typed.tolist() == list(range(6)) and len(typed) == 6 and typed.dtype is tenon.int16
    typed[1] = 300
    assert (
        x[1] == 300 and typed[1] == 300 and raw[2] == 300 - 256 and raw[1:4].tolist() == [0, 44, 1]
    )
    assert raw == typed and hash(raw) == hash(x.untyped_storage()) and raw != raw.clone()
    assert isinstance(typed, tenon.ShortStorage) and not isinstance(typed, tenon.FloatStorage)
    assert isinstance(typed, tenon.storage.TypedStorage) and typed.type().endswith("ShortStorage")
    y = tenon.empty(0, dtype=tenon.int16).set_(raw, 1, (2, 2), (2, 1))
    assert y.tolist() == [[300, 2], [3, 4]] and y.data_ptr() == x.data_ptr() + 2
    assert tenon.empty(0, dtype=tenon.int16).set_(source=raw).tolist() == x.tolist()
    again = pickle.loads(pickle.dumps((raw, typed)))
    assert again[0].tolist() == raw.tolist() and again[1].tolist() == typed.tolist()
    raw.fill_(0)
    assert not x.any()
    for bad in (3, "text", None):
        with pytest.raises(TypeError, match="set_\\(\\) takes a Tensor or a storage"):
            x.set_(bad)
    with pytest.raises((RuntimeError, ValueError)):
        y.set_(raw, 5, (2, 2), (2, 1))
    for sizes in ((2**62, 4), (3, 2**62, 2**62), (2**63 - 1, 2)):
        with pytest.raises((RuntimeError, ValueError)):
            y.set_(raw, 0, sizes)
    assert y.set_(raw, 0, (0, 2**62, 4)).numel() == 0


def test_new_storages():
    assert len(tenon.UntypedStorage(5)) == 5 and tenon.UntypedStorage([1, 2]).tolist() == [1, 2]
    floats = tenon.FloatStorage([0.5, 2.0])
    assert floats.nbytes() == 8 and tenon.TypedStorage(3, dtype=tenon.float64).nbytes() == 24
    assert floats.copy_(tenon.FloatStorage([1.0, 3.0])).tolist() == [1.0, 3.0]


def test_files_as_memory(tmp_path):
    path = tmp_path / "numbers"
    want = np.arange(5, dtype=np.float32)
    want.tofile(path)
    private = tenon.from_file(str(path), size=5)
    private[0] = 9
    assert private.tolist() == [9, 1, 2, 3, 4] and np.fromfile(path, np.float32)[0] == 0
    shared = tenon.UntypedStorage.from_file(path, shared=True, nbytes=24)
    t = tenon.empty(0).set_(shared)
    t[5] = 7
    assert np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3, 4, 7]
    with pytest.raises(RuntimeError, match="holds 24 bytes, not 4000"):
        tenon.from_file(str(path), size=1000)
    with pytest.raises(FileNotFoundError):
        tenon.from_file(str(tmp_path / "none"), size=1)
    with pytest.raises(ValueError, match="negative"):
        tenon.UntypedStorage.from_file(path, nbytes=-1)


def over_storages(lib):
    """Tensors out of storages: elements of the storage's dtype, or of bytes as the dtype says."""
    x = lib.tensor([1.5, -2.5], dtype=lib.float64)
    raw, typed, kinds = x.untyped_storage(), x.storage(), (lib.float64, lib.int32)
    made = [lib.tensor(typed, dtype=kinds[0]), x.new_tensor(typed), lib.tensor(raw)]
    made += [f(raw, dtype=k) for f in (lib.tensor, lib.as_tensor, lib.asarray) for k in kinds]
    made += [lib.tensor(x.float().storage()), lib.tensor(raw[:3], dtype=kinds[0])]
    said = [[str(t.dtype).split(".")[1], t.tolist()] for t in made]
    shared = lib.as_tensor(raw, dtype=lib.float64)
    x[0] = 7
    return [*said, shared.tolist()]


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_tensors_over_storages():
    assert over_storages(tenon) == stored.of_torch(over_storages)
    held = tenon.ones(2)
    again = tenon.tensor(held.untyped_storage(), dtype=tenon.float32)
    held.zero_()
    assert again.tolist() == [1, 1]  # tensor() copies

    def of_another_dtype(kind, asked=None):
        def call(lib):
            x = lib.ones(2, dtype=getattr(lib, kind))
            return lib.tensor(x.storage(), **({"dtype": getattr(lib, asked)} if asked else {}))

        return call

    check_beside("Expected a Storage of type Float or an", of_another_dtype("float64"))
    check_beside("but got Long", of_another_dtype("int64", "float32"))
