"""PowerSGD's numbers are PyTorch's, and plain averages where its matrices are of full rank."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import run
from tenon.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

# The sum of all parameters after eight steps, passes, and elements before and after compression, as
# PyTorch 2.13 has them in two processes over Gloo: power.py, its cases in order.
PYTORCH = [
    "-3.757453 8 15870 1800", "-3.742609 8 15870 3030", "-3.747826 8 15870 4530",
    "-3.766781 8 18515 2100", "-3.764818 8 15870 3030", "-3.753899 8 15870 1800",
    "-3.745621 8 15870 5550",
]  # fmt: skip


@pytest.mark.slow
def test_parameters_are_those_of_pytorch() -> None:
    lines = run("gloo", 2, "power.py").splitlines()
    found = [line.removeprefix("case ").split() for line in lines if line.startswith("case ")]
    assert lines.count("ok") == 2 and len(found) == len(PYTORCH)
    for mine, theirs in zip(found, map(str.split, PYTORCH), strict=True):
        assert float(mine[0]) == pytest.approx(float(theirs[0]), abs=3e-6)
        assert mine[1:] == theirs[1:]


@pytest.mark.parametrize("seed", [0, 1, 77, 2**32 - 1])
def test_seeds_are_those_of_numpy(seed: int) -> None:
    numpy, ours = np.random.RandomState(seed), powerSGD_hook._seeds(seed)
    assert [next(ours) for _ in range(2000)] == [numpy.randint(10**9) for _ in range(2000)]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_columns_become_orthonormal(rank: int) -> None:
    import tenon as tn

    for dtype, close in ((tn.float32, 1e-5), (tn.float64, 1e-12), (tn.bfloat16, 0.03)):
        m = tn.tensor(np.random.default_rng(rank).normal(size=(2, 7, rank))).to(dtype)
        kept = m.clone()
        powerSGD_hook._orthogonalize(m, 0)
        gram = (m.double().transpose(1, 2) @ m.double()).numpy()
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(rank), gram.shape), atol=close)
        both = tn.cat([m, kept], 2).double()
        assert (tn.linalg.svdvals(both)[:, rank:] < max(close, 1e-4) * 10).all()  # one space
