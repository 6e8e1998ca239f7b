"""A default device is where a program's tensors are made. What the library makes for itself lies
where it is needed: the default is a device without memory here, on which no slip can work."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from tenon import nn

X = tn.arange(12.0).reshape(4, 3)


@pytest.fixture
def nowhere() -> Iterator[None]:
    with tn.device("meta"):
        assert tn.ones(2).is_meta
        yield


def test_files_and_pickles(nowhere: None) -> None:
    table = {"x": X, "view": X[1:], "none": X[:0], "n": X.to(tn.int16), "sparse": X.to_sparse()}
    file = io.BytesIO()
    tn.save(table, file)
    file.seek(0)
    for back in (tn.load(file), pickle.loads(pickle.dumps(table))):
        for name, t in table.items():
            assert back[name].device.type == "cpu", name
            assert tn.equal(back[name].to_dense(), t.to_dense()), name
    storage = pickle.loads(pickle.dumps(X.untyped_storage()))
    assert bytes(storage) == X.numpy().tobytes()


def test_memory_of_others(nowhere: None, tmp_path: Path) -> None:
    """As PyTorch: what looks at memory lies there."""
    assert tn.frombuffer(X.numpy().tobytes(), dtype=tn.float32).tolist() == X.flatten().tolist()
    assert tn.from_numpy(np.ones(3)).tolist() == [1.0] * 3
    (tmp_path / "f").write_bytes(X.numpy().tobytes())
    mapped = tn.from_file(str(tmp_path / "f"), size=12, dtype=tn.float32)
    assert mapped.tolist() == X.flatten().tolist()


def without_memory(worker: int) -> None:
    tn.set_default_device("meta")


def test_samples_in_workers() -> None:
    data = tn.utils.data.Subset(tn.utils.data.TensorDataset(X, X.sum(1)), [3, 0, 1])
    loader = tn.utils.data.DataLoader(data, 2, num_workers=1, worker_init_fn=without_memory)
    batches = [b[0].tolist() for b in loader]
    assert batches == [X[[3, 0]].tolist(), X[[1]].tolist()]


def test_packed_sequences(nowhere: None) -> None:
    padded = X.reshape(2, 2, 3)
    packed = nn.utils.rnn.pack_padded_sequence(padded, [2, 1])
    assert packed.batch_sizes.tolist() == [2, 1]
    back, lengths = nn.utils.rnn.pad_packed_sequence(packed)
    assert lengths.tolist() == [2, 1] and back[0].tolist() == padded[0].tolist()
    packed = nn.utils.rnn.pack_sequence([X[:1], X[1:]], enforce_sorted=False)
    assert [t.tolist() for t in nn.utils.rnn.unpack_sequence(packed)] == [
        X[:1].tolist(), X[1:].tolist()
    ]  # fmt: skip


def test_pipes_draw_their_orders(nowhere: None) -> None:
    pipe = tn.utils.data.datapipes.iter.IterableWrapper(range(9)).shuffle()
    assert sorted(pipe) == list(range(9))


def test_tensors_for_tests(nowhere: None) -> None:
    for dtype in (tn.float32, tn.int64, tn.complex64):
        made = tn.testing.make_tensor(5, dtype=dtype, device="cpu", low=1, high=3)
        assert made.is_cpu and bool((made.real >= 1).all())


def test_derivatives(nowhere: None) -> None:
    x = X.new_ones(80)
    assert tn.func.jacrev(lambda v: 2 / v)(x).equal(tn.eye(80, device="cpu") * -2)
    assert tn.func.hessian(lambda v: (v**3).sum())(x).equal(tn.eye(80, device="cpu") * 6)
    target = tn.tensor([0, 1, 2, 0], device="cpu")
    each = tn.vmap(lambda s, t: nn.functional.cross_entropy(s[None], t[None]))(X, target)
    assert each.allclose(nn.functional.cross_entropy(X, target, reduction="none"))
