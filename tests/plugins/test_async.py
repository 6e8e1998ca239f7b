"""Failures that a device reports late: which operator is named, once and where, and how to have
them at the call. Devices that are mixed are both named."""

from __future__ import annotations

from pathlib import Path

import cases
import pytest
from simulated import HAVE_CC, run, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


FAIL = """
import pytest
x = tn.ones(3, device="sim")
tn.sim.synchronize()
with pytest.raises(RuntimeError) as failure:
    y = (x * 2).exp()
    y.cpu()
said = str(failure.value)
"""


def test_a_device_that_names_the_operator(folder: Path) -> None:
    text = """
assert said.startswith("sim:0: 'exp' failed") and "first operator" not in said, said
assert x.cpu().tolist() == [1.0] * 3  # once
"""
    script(folder, FAIL + text, FAULT="kernel:exp:1")


def test_a_device_that_names_none(folder: Path) -> None:
    """Core names the first operator since the device was last waited for, so not `ones`."""
    text = """
assert said.startswith("sim:0: a launch failed (the first operator since sim:0 was"), said
assert "last waited for was 'mul'; TENON_LAUNCH_BLOCKING=1 shows which" in said, said
"""
    script(folder, FAIL + text, FAULT="kernel:exp:1", NAMES=0)


@pytest.mark.parametrize("names", [0, 1])
def test_launches_that_block(folder: Path, names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_LAUNCH_BLOCKING", "1")
    text = """
import pytest
x = tn.ones(3, device="sim")
y = x * 2
with pytest.raises(RuntimeError, match="'exp'"):
    y.exp()
assert y.exp().sum().item() > 22
"""
    script(folder, text, FAULT="kernel:exp:1", NAMES=names)


def test_a_failure_that_nobody_waited_for_is_kept(folder: Path) -> None:
    """The allocator looks whether other streams are done, and hears of a failure there: whoever
    waits next is told."""
    text = """
import pytest, time
s = tn.Stream("sim")
x = tn.ones(1000, device="sim")
s.wait_stream(tn.current_stream("sim"))
with s:
    y = x.exp()
del x
time.sleep(0.2)
z = [tn.zeros(1000, device="sim") for _ in range(3)]
with pytest.raises(RuntimeError, match="'exp' failed"):
    tn.sim.synchronize()
tn.sim.synchronize()
"""
    script(folder, text, FAULT="kernel:exp:1", WITHOUT="allocator")


def test_every_way_of_waiting_raises(folder: Path) -> None:
    text = """
import pytest
def fail():
    y = tn.ones(3, device="sim") * 2
    return y
stream = tn.current_stream("sim")
waits = (lambda y: y.cpu(), lambda y: y.tolist(), lambda y: y.sum().item(), lambda y: repr(y),
         lambda y: tn.sim.synchronize(), lambda y: stream.synchronize(),
         lambda y: stream.record_event().synchronize(), lambda y: y.digamma())
for wait in waits:
    y = fail()
    with pytest.raises(RuntimeError, match="'mul' failed"):
        wait(y)
    assert tn.ones(2, device="sim").tolist() == [1.0, 1.0]
"""
    faults = ",".join(f"kernel:mul:{n}" for n in range(1, 9))
    script(folder, text, FAULT=faults)


def test_backward_names_it_too(folder: Path) -> None:
    text = """
import pytest
x = tn.ones(3, 3, device="sim", requires_grad=True)
with pytest.raises(RuntimeError, match="'mm' failed"):
    (x @ x.detach()).sum().backward()
    x.grad.cpu()
"""
    script(folder, text, FAULT="kernel:mm:2")


def test_mixed_devices_are_both_named(folder: Path) -> None:
    text = """
import pytest
a, b, c = tn.ones(3, device="sim"), tn.ones(3, device="sim:1"), tn.ones(3)
mixed = ((a, b, "sim:0 and sim:1"), (b, c, "sim:1 and cpu:0"), (c, a, "cpu:0 and sim:0"))
for x, y, names in mixed:
    for call in (lambda: x + y, lambda: x @ y, lambda: tn.where(x > 0, x, y),
                 lambda: tn.cat([x, y]), lambda: x.addcmul_(x, y), lambda: tn.stack([x, y]),
                 lambda: tn.nn.functional.linear(x, y[None]),
                 lambda: x.index_select(0, y.long())):
        with pytest.raises(RuntimeError, match="same device.*" + names):
            call()
"""
    script(folder, text)


def test_a_bad_value_of_the_switch(folder: Path) -> None:
    done = run(folder, "-c", "import tenon as tn; tn.ones(1, device='sim')", NAMES=2)
    assert "TENON_SIM_NAMES is '2' and must be" in done.stderr


READ_BY_THE_HOST = """
x = tn.tensor([1.0, 2.0, 3.0])
late = x.to("late")
assert late.cpu().tolist() == [1.0, 2.0, 3.0], "read before the queue was waited for"
twice = late.clone()
twice.copy_(late * 2)
assert twice.to("acme").cpu().tolist() == [2.0, 4.0, 6.0]
twice.copy_(x)
twice.copy_((x * 3).to("acme"))
late.copy_(twice)
assert late.tolist() == [3.0, 6.0, 9.0], "an earlier copy overtook a later one"
"""


def test_host_memory_of_a_device_with_a_queue(folder: Path, tmp_path: Path) -> None:
    """That the host can read it does not mean that all that was queued is in it."""
    source = Path(__file__).with_name("late_device.c").read_text(encoding="utf-8")
    cases.add(tmp_path, "late", source, "-std=c11", "-Wall", "-Wextra", "-Werror")
    folders = Path(f"{tmp_path}:{folder}")
    script(folders, READ_BY_THE_HOST)


def test_gradients_that_nothing_came_to_are_of_the_output_s_device(folder: Path) -> None:
    text = """
class Both(tn.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        assert g.device == h.device == tn.device("sim:1") and h.tolist() == [0, 0]
        return g + h

x = tn.ones(2, device="sim:1", requires_grad=True)
Both.apply(x)[0].sum().backward()
assert x.grad.tolist() == [1, 1]
"""
    script(folder, text)
