"""Meshes and tensors of one process, which need no engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tenon as tn
from tenon import distributed as dist
from tenon.distributed import tensor as dt
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceMesh]:
    """What begins a group of the only process if there is none."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    assert not dist.is_initialized()
    made = init_device_mesh("cpu", (1, 1), mesh_dim_names=("rows", "columns"))
    assert dist.is_initialized()
    yield made
    dist.destroy_process_group()


def test_meshes(mesh: DeviceMesh) -> None:
    assert (mesh.ndim, mesh.size(), tuple(mesh.shape)) == (2, 1, (1, 1))
    assert mesh.get_coordinate() == (0, 0) and mesh["rows"].ndim == 1
    with pytest.raises(RuntimeError, match="not be bigger than default world size 1, but found 6"):
        init_device_mesh("cpu", (2, 3))
    with pytest.raises(RuntimeError, match=r"a mesh of \(0,\) has not the 1 ranks"):
        init_device_mesh("cpu", (0,))


def test_tensors_that_are_made(mesh: DeviceMesh) -> None:
    where = {"device_mesh": mesh, "placements": [dt.Shard(0), dt.Replicate()]}
    for made, shape, number in (
        (dt.zeros(4, 3, **where), (4, 3), 0), (dt.ones((4, 3), **where), (4, 3), 1),
        (dt.zeros(5, **where), (5,), 0), (dt.empty([2], **where), (2,), None),
        (dt.full((2, 2), 7.0, **where), (2, 2), 7), (dt.full((3,), 0.0, **where), (3,), 0),
        (dt.full((3,), fill_value=0.0, **where), (3,), 0),
        (dt.full((3,), fill_value=2, dtype=tn.int64, device_mesh=mesh), (3,), 2),
    ):  # fmt: skip
        assert isinstance(made, dt.DTensor) and tuple(made.shape) == shape
        assert number is None or (made.to_local() == number).all()
    for size in (((3,),), ((3,), 1.0, 2.0)):
        with pytest.raises(TypeError, match="takes a size and a fill_value"):
            dt.full(*size, **where)
    tn.manual_seed(3)
    drawn = dt.rand(2, 3, **where)
    tn.manual_seed(3)
    assert tn.equal(drawn.to_local(), tn.rand(2, 3)) and not drawn.requires_grad
    assert dt.randn(2, requires_grad=True, **where).requires_grad
