"""What is cut among processes: optimizers' state, parameters, tensors."""

from __future__ import annotations

import os

import pytest
from ranks import run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "check"),
    [
        ("sharding.py", "zero"),
        ("sharding.py", "averages"),
        ("sharding.py", "local_steps"),
        ("sharding.py", "functional"),
        ("sharding.py", "replicated"),
        ("ddp_passes.py", ""),
        ("dtensors.py", "elementwise"),
        ("dtensors.py", "products"),
        ("dtensors.py", "reductions"),
        ("dtensors.py", "shapes"),
        ("dtensors.py", "along"),
        ("dtensors.py", "pieces"),
        ("dtensors.py", "letters"),
        ("dtensors.py", "averages"),
        ("dtensors.py", "lies"),
        ("dtensors.py", "in_place"),
        ("dtensors.py", "written"),
        ("dtensors.py", "terms"),
        ("dtensors.py", "functions norms_of_lists"),
        ("dtensors.py", "rules"),
        ("dtensors.py", "layouts"),
        ("dtensors.py", "gradients_that"),
        ("dtensors.py", "new_tensors"),
        ("dtensors.py", "sources"),
        ("dtensors.py", "files gradients_given strides outside no_numbers"),
        ("dtensors.py", "mistakes"),
        ("tensor_parallel.py", "tensor"),
        ("tensor_parallel.py", "sequence"),
        ("tensor_parallel.py", "inputs"),
        ("fsdp.py", "fully"),
        ("fsdp.py", "cut"),
        ("fsdp.py", "memory"),
        ("fsdp.py", "accumulation"),
        ("fsdp.py", "flat"),
        ("fsdp.py", "states"),  # and those by earlier names, and between passes
        ("fsdp.py", "mixed"),
        ("fsdp.py", "checkpointed"),
        ("fsdp.py", "frozen"),
        ("fsdp.py", "several_modules"),
        ("fsdp.py", "whole_gradients"),
        ("fsdp.py", "looks"),
        ("fsdp.py", "what_a_loss"),
        ("fsdp.py", "gradient_scaler"),
        ("fsdp.py", "states_of_the_first_rank"),
        ("fsdp.py", "norm_of"),
        ("fsdp.py", "what_is"),
        ("fsdp.py", "what_mixed"),
        ("fsdp.py", "modules"),
        ("fsdp.py", "mistakes"),
        ("fsdp_passes.py", "other"),
        ("fsdp_passes.py", "gathers"),
        ("fsdp_passes.py", "sums"),
        ("fsdp_passes.py", "a_pass_that_fails"),
        ("fsdp_passes.py", "parameters_that_stay"),
        ("pipelines.py", "one"),
        ("pipelines.py", "several"),
        ("pipelines.py", "models"),
        ("pipelines.py", "orders"),
        ("pipelines.py", "mistakes"),
    ],
)
def test_two_processes_compute_what_one_does(program: str, check: str) -> None:
    assert run("gloo", 2, program, *check.split()).count("ok") == 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_a_sequence_that_is_cut(size: int) -> None:
    assert run("gloo", size, "context.py").count("ok") == size


@pytest.mark.slow
def test_a_mesh_of_two_dimensions() -> None:
    checks = ("products", "layouts", "averages", "gradients_that", "new_tensors", "norms")
    assert run("gloo", 4, "dtensors.py", *checks).count("ok") == 4
    assert run("gloo", 4, "fsdp.py", "hybrid_mesh", "mesh_of_tensors").count("ok") == 4
    assert run("gloo", 4, "fsdp_passes.py", "copies").count("ok") == 4


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(3, 5), (4, 6)])
def test_random_computations(size: int, seed: int) -> None:
    """TENON_TEST_ROUNDS: of how many cases."""
    cases = os.environ.get("TENON_TEST_ROUNDS", "120")
    assert run("gloo", size, "../fuzz/dtensors.py", str(seed), cases).count("ok") == size
