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
    with pytest.raises(RuntimeError, match=r"a mesh of \(0,\) has no ranks"):
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


# What stands at the ends of a rule: the last dimension, one that is counted from the end, none.
ENDS = {
    "flatten(-1)": lambda x: x.flatten(-1), "flatten(0, -2)": lambda x: x.flatten(0, -2),
    "flatten(1, 1)": lambda x: x.flatten(1, 1), "row.flatten": lambda x: x[0, 0].flatten(-1),
    "number.flatten": lambda x: x.sum().flatten(), "unflatten": lambda x: x.unflatten(-1, (2, -1)),
    "unflatten(0)": lambda x: x.unflatten(0, (1, 3)), "view": lambda x: x.view(6, 4),
    "reshape": lambda x: x.reshape(3, -1), "transpose": lambda x: x.transpose(0, -1),
    "permute": lambda x: x.permute(2, 0, -2), "t": lambda x: x[0].t(),
    "unsqueeze(-1)": lambda x: x.unsqueeze(-1), "unsqueeze(3)": lambda x: x.unsqueeze(3),
    "unsqueeze(-4)": lambda x: x.unsqueeze(-4), "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze(-2)": lambda x: x[:, :1].squeeze(-2), "squeeze(0)": lambda x: x.squeeze(0),
    "expand": lambda x: x[:, :1].expand(3, 5, -1), "split": lambda x: x.split([1, 3], -1)[1],
    "chunk": lambda x: x.chunk(3, 2)[1], "tensor_split": lambda x: x.tensor_split([1, 2], 0)[1],
    "cat": lambda x: tn.cat([x, x * 2], -1), "stack(-1)": lambda x: tn.stack([x, -x], -1),
    "stack(3)": lambda x: tn.stack([x, -x], 3), "softmax": lambda x: x.softmax(-3),
    "cumsum": lambda x: x.cumsum(2), "flip": lambda x: x.flip(0, -1),
    "sort": lambda x: x.sort(-1, descending=True)[0], "topk": lambda x: x.topk(2, 0)[1],
    "layer_norm": lambda x: tn.nn.functional.layer_norm(x, (2, 4)),
    "matmul": lambda x: x @ x.transpose(1, 2), "sum": lambda x: x.sum((0, -1), keepdim=True),
    "sum()": lambda x: x.sum(), "mean": lambda x: x.mean(-2), "mean()": lambda x: x.mean(),
    "amax": lambda x: x.amax((1, 2)), "max": lambda x: x.max(-1)[1], "min": lambda x: x.min(),
    "argmax": lambda x: x.argmax(1), "var": lambda x: x.var(0), "any": lambda x: (x > 1).any(2),
    "row": lambda x: x + x[0, 0], "column": lambda x: x * x[:, :1, :1], "number": lambda x: 2 - x,
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_rules_at_their_ends(mesh: DeviceMesh, name: str) -> None:
    plain = (tn.arange(24.0) * 7 % 11 - 4).reshape(3, 2, 4)
    want = ENDS[name](plain)
    for placements in ([dt.Shard(0), dt.Replicate()], [dt.Replicate(), dt.Shard(2)]):
        x = dt.DTensor.from_local(plain, mesh, placements)
        got = ENDS[name](x)
        assert isinstance(got, dt.DTensor) and got.shape == want.shape
        tn.testing.assert_close(got.full_tensor(), want)
    whole = dt.DTensor.from_local(plain, mesh)
    assert [p.is_replicate() for p in whole.placements] == [True, True]
