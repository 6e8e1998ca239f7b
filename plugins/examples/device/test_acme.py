"""Tests of the plugin, wherever it is installed: pytest test_acme.py

`tenon conform acme` asks far more, and says what is wrong in whose operator.
"""

import os

os.environ.setdefault("TENON_FALLBACK", "allow")  # operators without a kernel run on the CPU

import tenon as tn  # noqa: E402 (the variable is read when operators fall back)


def test_there_and_back() -> None:
    host = tn.arange(12.0).reshape(3, 4)
    x = host.to("acme")
    assert x.device == tn.device("acme", 0)
    assert tn.equal(x.cpu(), host)
    assert tn.equal(x.t()[1:].cpu(), host.t()[1:])
    assert tn.acme.device_count() >= 1


def test_kernel_of_our_own() -> None:
    x = tn.arange(6.0, device="acme").reshape(2, 3)
    before = tn.acme.fallback_count("neg")
    assert (-x).cpu().tolist() == [[-0.0, -1.0, -2.0], [-3.0, -4.0, -5.0]]
    assert tn.acme.fallback_count("neg") == before, "neg ran on the CPU"
    assert (-x.t()[1:]).cpu().tolist() == [[-1.0, -4.0], [-2.0, -5.0]]


def test_training() -> None:
    def train(device: str) -> float:
        tn.manual_seed(1)
        x = tn.randn(32, 3).to(device)
        net = tn.nn.Sequential(tn.nn.Linear(3, 8), tn.nn.ReLU(), tn.nn.Linear(8, 1)).to(device)
        opt = tn.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(10):
            loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()

    assert train("acme") == train("cpu")
