"""Models that are cut into the stages of a pipeline, in one process."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.distributed.pipelining import SplitPoint, pipe_split, pipeline

BEGINNING, END = SplitPoint.BEGINNING, SplitPoint.END


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Any) -> Any:
        return self.inner(x) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.scale = nn.Parameter(tn.rand(4))
        self.register_buffer("shift", tn.rand(4))

    def forward(self, index: Any, mask: Any = None, *, times: float = 2.0) -> Any:
        h = first = self.table(index)
        for block in self.blocks:
            h = block(h)
        if mask is not None:
            h = h * mask
        return h * self.scale + first * times + self.shift


@pytest.fixture
def net() -> Net:
    tn.manual_seed(0)
    return Net()


INDEX = tn.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("points", "held"),
    [
        ({"blocks.1": BEGINNING}, ["table blocks.0", "blocks.1 blocks.2 scale shift"]),
        ({"blocks.1": END}, ["table blocks.0 blocks.1", "blocks.2 scale shift"]),
        (
            {"blocks.0": BEGINNING, "blocks.0.inner": END, "blocks.2": END},
            ["table", "blocks.0", "blocks.1 blocks.2", "scale shift"],
        ),
        ({"blocks.0.inner.1": BEGINNING},
         ["table blocks.0.inner.0", "blocks.1 blocks.2 scale shift"]),
        (None, ["table blocks.0 blocks.1 blocks.2 scale shift"]),
    ],
)  # fmt: skip
def test_stages_together_are_the_model(net: Net, points: Any, held: list[str]) -> None:
    mask = tn.rand(4)
    calls: Any = [((INDEX,), {}), ((INDEX, mask), {"times": 0.5}), ((INDEX,), {"mask": mask})]
    for args, kwargs in calls:
        pipe = pipeline(net, args, kwargs, split_spec=points)
        (got,) = pipe(*args, **kwargs)
        tn.testing.assert_close(got, net(*args, **kwargs), rtol=0, atol=0)
        assert pipe.num_stages == len(held)
        names = [set(pipe.get_stage_module(i).state_dict()) for i in range(pipe.num_stages)]
        assert set().union(*names) == set(net.state_dict())
        for found, wanted in zip(names, held, strict=True):
            assert found == {n for n in net.state_dict() if n.startswith(tuple(wanted.split()))}
        shared = dict(net.named_parameters())
        for i in range(pipe.num_stages):
            for n, p in pipe.get_stage_module(i).named_parameters():
                assert p is shared[n]


def test_a_program_says_where_stages_begin() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            pipe_split()
            return self.b(y) - x

    model, x = Two(), tn.rand(2, 3)
    pipe = pipeline(model, (x,))
    assert pipe.num_stages == 2 and "self.a" in pipe.print_readable()
    assert [sorted(dict(pipe.get_stage_module(i).named_children())) for i in (0, 1)] == [
        ["a"],
        ["b"],
    ]
    assert tn.equal(*pipe(x), model(x))

    def by_policy(graph: Any) -> Any:
        node = next(n for n in graph.graph.nodes if n.target == "0")
        with graph.graph.inserting_after(node):
            graph.graph.call_function(pipe_split)
        graph.recompile()
        return graph

    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    pipe = pipeline(layers, (x,), split_policy=by_policy)
    assert pipe.num_stages == 2 and tn.equal(*pipe(x), layers(x))
    assert sorted(pipe.get_stage_module(1).state_dict()) == ["2.bias", "2.weight"]


def test_mistakes(net: Net) -> None:
    def refused(kind: type[Exception], text: str, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(kind, match=text):
            pipeline(*args, **kwargs)

    refused(ValueError, "no module 'blocks.7'", net, (INDEX,), split_spec={"blocks.7": END})
    refused(TypeError, "expected a SplitPoint", net, (INDEX,), split_spec={"blocks.1": 1})
    refused(ValueError, "only one", net, (INDEX,), split_spec={}, split_policy=lambda g: g)
    refused(TypeError, "missing a required argument", net, ())
    one = nn.Linear(3, 3)
    refused(NotImplementedError, "in the stages 0 and 1", nn.Sequential(one, nn.ReLU(), one),
            (tn.rand(2, 3),), split_spec={"1": BEGINNING})  # fmt: skip

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            rows = x.shape[0]
            return self.b(self.a(x)) * rows

    refused(TypeError, "stage 0 would give a int", Rows(), (tn.rand(2, 3),),
            split_spec={"b": BEGINNING})  # fmt: skip
    pipe = pipeline(net, (INDEX,), split_spec={"blocks.1": BEGINNING})
    with pytest.raises(ValueError, match="Invalid stage index 2: there are 2"):
        pipe.get_stage_module(2)
    with pytest.raises(TypeError, match="unexpected keyword"):
        pipe(INDEX, other=1)
    pipe = pipeline(net, (INDEX,), {"times": 0.5}, split_spec={"blocks.1": BEGINNING})
    with pytest.raises(AssertionError, match="times has been specialized to have value 0.5"):
        pipe(INDEX, times=3.0)
