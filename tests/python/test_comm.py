"""Exchanges between devices of one process, which may all be the CPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import comm

OPERATIONS = {
    comm.SUM: np.sum, "avg": np.mean, "PRODUCT": np.prod, comm.MIN: np.min, "max": np.max,
}  # fmt: skip


def drawn(*shape: int, n: int = 3) -> tuple[list[tn.Tensor], np.ndarray]:
    numbers = np.random.default_rng(4).standard_normal((n, *shape)).astype(np.float32)
    return [tn.tensor(row) for row in numbers], numbers


def same(tensors: list[tn.Tensor], wanted: Any) -> None:
    for mine, theirs in zip(tensors, wanted, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", OPERATIONS)
def test_sums_and_their_kin(op: Any) -> None:
    given, numbers = drawn(6)
    all_of = OPERATIONS[op](numbers, axis=0)
    outputs = [tn.empty(6) for _ in given]
    comm.all_reduce(given, outputs, op)
    same(outputs, [all_of] * 3)
    same(given, numbers)
    parts = [tn.empty(2) for _ in given]
    comm.reduce_scatter(given, parts, op)
    same(parts, all_of.reshape(3, 2))
    output = tn.empty(6)
    comm.reduce(given, output, 1, op)
    same([output], [all_of])
    comm.reduce(given, root=2, op=op)
    same(given, [numbers[0], numbers[1], all_of])
    comm.all_reduce(given, op=op)
    same(given, [OPERATIONS[op](np.stack([numbers[0], numbers[1], all_of]), axis=0)] * 3)


def test_copies() -> None:
    given, numbers = drawn(4)
    outputs = [tn.empty(12) for _ in given]
    comm.all_gather(given, outputs)
    same(outputs, [numbers.reshape(-1)] * 3)
    comm.broadcast(given, root=1)
    same(given, [numbers[1]] * 3)
    one = tn.arange(4.0)
    same(list(comm.broadcast(one, ["cpu", "cpu"])), [one.numpy()] * 2)
    out = [tn.empty(4), tn.empty(4)]
    assert comm.broadcast(one, out=out)[1] is out[1]
    same(out, [one.numpy()] * 2)
    several = comm.broadcast_coalesced([one, one * 2], ["cpu", "cpu"])
    same(list(several[1]), [one.numpy(), one.numpy() * 2])


def test_parts() -> None:
    x = tn.arange(10.0).reshape(5, 2)
    parts = comm.scatter(x, ["cpu", "cpu"])
    same(list(parts), [x[:3].numpy(), x[3:].numpy()])
    sizes = comm.scatter(x, ["cpu", "cpu"], [1, 4])
    same(list(sizes), [x[:1].numpy(), x[1:].numpy()])
    same([comm.gather(sizes)], [x.numpy()])
    columns = comm.scatter(x, ["cpu", "cpu"], dim=1)
    same([comm.gather(columns, dim=1)], [x.numpy()])
    same([comm.reduce_add([x, x * 2])], [x.numpy() * 3])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: comm.reduce([x, x], root=2), "no rank 2 of 2"),
        (lambda x: comm.reduce([x, x], root=-1), "no rank -1 of 2"),
        (lambda x: comm.all_reduce([x, x], op="xor"), "expected one of SUM"),
        (lambda x: comm.all_reduce([x, x], op=5), "expected one of SUM"),
        (lambda x: comm.broadcast(x), "one of devices and out"),
        (lambda x: comm.broadcast(x, ["cpu"], out=[x]), "one of devices and out"),
        (lambda x: comm.scatter(x, ["cpu", "cpu"], [1]), "one chunk size for"),
    ],
)
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        call(tn.ones(4))
