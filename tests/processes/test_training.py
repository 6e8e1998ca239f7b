"""DistributedDataParallel: several processes train as one does, to the same bits in all of them."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import run


def weights(size: int, *options: str, engine: str = "gloo") -> tuple[str, np.ndarray]:
    digest, *sums = run(engine, size, "training.py", *options).split()
    return digest, np.array(sums, dtype=np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("unused",), ("batchnorm",), ("views", "copied")])
def test_three_processes_train_as_one(options: tuple[str, ...]) -> None:
    _, alone = weights(1, *options)
    _, together = weights(3, *options)
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_bits_do_not_depend_on_the_order_of_gradients() -> None:
    plain, _ = weights(3)
    delayed, _ = weights(3, "delays")
    assert plain == delayed


@pytest.mark.slow
def test_engines_agree() -> None:
    _, gloo = weights(3)
    _, mpi = weights(3, engine="openmpi")
    np.testing.assert_allclose(mpi, gloo, rtol=1e-12)


@pytest.mark.slow
def test_processes_with_different_numbers_of_inputs() -> None:
    digest, _ = weights(3, "join")
    assert len(digest) == 64
    assert run("gloo", 3, "joins.py").count("ok") == 3
