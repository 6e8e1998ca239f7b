"""Programs that were traced, called in what is recorded."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon import nn


def test_what_was_traced_takes_other_sizes_in_what_is_recorded() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wave = tn.jit.trace(lambda x: tn.tanh(x) * 2 + 1, tn.ones(3))
            self.rows = tn.jit.trace(nn.Linear(3, 2), tn.ones(4, 3))

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.rows(self.wave(x)).sum()

    net = Net()
    x = tn.linspace(-1, 1, 12).reshape(2, 2, 3)
    made = [tn.compile(net, fullgraph=True), tn.jit.trace(net, x), tn.export.export(net, (x,))]
    made[2] = made[2].module()
    for _ in range(2):
        assert [m(x).item() for m in made] == pytest.approx([net(x).item()] * 3)
        with tn.no_grad():
            net.rows.weight.mul_(2)
    net(x).backward()
    wanted = net.rows.weight.grad.clone()
    net.zero_grad()
    made[0](x).backward()
    assert tn.allclose(net.rows.weight.grad, wanted)
    assert tn.compile(net, fullgraph=True)(x[0, 0]).item() == pytest.approx(net(x[0, 0]).item())


def test_other_sizes_of_another_function_by_now_are_refused_in_what_is_recorded() -> None:
    factor = [2.0]
    wave = tn.jit.trace(lambda x: x * factor[0], tn.ones(3))
    factor[0] = 3.0
    with pytest.raises(RuntimeError, match="input 'x' of the program has shape"):
        tn.jit.trace(lambda x: wave(x) + 1, tn.ones(2, 3))
