"""Parts of nn.parallel that packages call by themselves, over devices of which two are one."""

import pytest
import tenon as tn
from tenon import nn
from tenon.nn.parallel import _functions, comm
from tenon.nn.parallel.parallel_apply import get_a_var, parallel_apply
from tenon.nn.parallel.replicate import replicate


def test_exchanges_have_gradients():
    x = tn.arange(6.0).view(3, 2).requires_grad_()
    y = tn.ones(3, requires_grad=True)
    first = _functions.Broadcast.apply(["cpu", "cpu"], x, y)
    assert [t.shape for t in first] == [(3, 2), (3,)] * 2
    (first[0].sum() + 2 * first[2].sum() + 3 * first[3].sum()).backward()
    assert x.grad.tolist() == [[3, 3]] * 3 and y.grad.tolist() == [3] * 3
    parts = _functions.Scatter.apply(["cpu", "cpu"], [1, 2], 0, x)
    assert [p.shape for p in parts] == [(1, 2), (2, 2)]
    assert tn.equal(_functions.Gather.apply("cpu", 0, *parts), x)
    assert _functions.Gather.apply("cpu", 0, tn.tensor(1.0), tn.tensor(2.0)).tolist() == [1, 2]
    total = _functions.ReduceAddCoalesced.apply("cpu", 2, x, y, x, y)
    assert tn.equal(total[0], 2 * x) and tn.equal(total[1], 2 * y)
    assert tn.equal(comm.reduce_add_coalesced([[x], [x]])[0], 2 * x)
    assert _functions.Broadcast.apply(["cpu"]) == ()


def test_modules_at_once():
    tn.manual_seed(0)
    layers = [nn.Linear(2, 3), nn.Linear(2, 3)]
    x = tn.randn(4, 2)
    got = parallel_apply(layers, [x, (x,)], devices=["cpu", "cpu"])
    assert all(tn.equal(g, m(x)) for g, m in zip(got, layers)) and got[0].requires_grad
    with tn.no_grad():
        assert not parallel_apply(layers, [x, x])[1].requires_grad
    named = parallel_apply([lambda a, scale: a * scale], [x], [{"scale": 3}])
    assert tn.equal(named[0], 3 * x)
    with pytest.raises(RuntimeError, match="shape") as failed:
        parallel_apply(layers, [x, tn.ones(4, 5)])
    assert failed.value.__notes__[-1] == "in replica 1 of parallel_apply()"
    with pytest.raises(AssertionError, match="number of inputs 1"):
        parallel_apply(layers, [x])


class Shared(nn.Module):
    """A module that has one twice, an absent parameter and a buffer with a gradient."""

    def __init__(self):
        super().__init__()
        self.inner = self.again = nn.Linear(2, 2, bias=False)
        self.norm = nn.BatchNorm1d(2)
        self.register_parameter("absent", None)
        self.register_buffer("scale", tn.full((2,), 3.0, requires_grad=True))

    def forward(self, x):
        return self.norm(self.again(self.inner(x))) * self.scale


def test_replicas_compute_and_their_gradients_reach_the_module():
    tn.manual_seed(0)
    net = Shared()
    x = tn.randn(6, 2)
    net(x).square().sum().backward()
    want = {n: p.grad.clone() for n, p in net.named_parameters()} | {"scale": net.scale.grad}
    net.zero_grad()
    net.scale.grad, means = None, net.norm.running_mean.clone()
    replicas = replicate(net, ["cpu", "cpu"])
    assert all(r.inner is r.again and r.absent is None for r in replicas)
    assert all(type(r) is Shared and not list(r.parameters()) for r in replicas)
    assert replicas[0].inner is not replicas[1].inner
    assert list(replicas[0].norm._former_parameters) == ["weight", "bias"]
    for result in parallel_apply(replicas, [x, x]):
        (result.square().sum() / 2).backward()
    got = {n: p.grad for n, p in net.named_parameters()} | {"scale": net.scale.grad}
    assert got.keys() == want.keys()
    assert all(tn.allclose(got[n], want[n], atol=1e-5) for n in want)
    assert len(net.state_dict()) == 8 and replicate(net, []) == []
    assert not tn.equal(net.norm.running_mean, means)  # the CPU's copies are the module's own
    apart = replicate(net, ["cpu"], detach=True)[0]
    assert not apart(x).requires_grad and tn.equal(apart.inner.weight, net.inner.weight)


def test_first_tensor():
    x = tn.ones(2)
    assert get_a_var([1, {"a": (None, x)}]) is x and get_a_var([1, "a"]) is None
