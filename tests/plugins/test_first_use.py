"""Threads that use devices, and so their plugins, for the first time, all at once, with streams of
their own. The thread sanitizer watches in its build."""

from __future__ import annotations

from pathlib import Path

import pytest
import simulated

PROGRAM = """
import sys, threading
import tenon as tn
start = threading.Barrier(4)
wrong = []

def use(device):
    start.wait()
    try:
        x = tn.ones(300, 300, device=device)
        if device == "sim":
            stream, event = tn.Stream("sim"), tn.Event("sim")
            stream.wait_stream(tn.current_stream("sim"))
            with stream:
                y = x * 3
                event.record()
            event.wait()
            stream.synchronize()
            assert y.sum().item() == 270000
        assert (x * 2 + x).sum().item() == 270000
        assert tn.randn(50, device=device).sort()[0].shape == (50,)
    except Exception as e:
        wrong.append(repr(e))

threads = [threading.Thread(target=use, args=(device,)) for device in sys.argv[1:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
"""


@pytest.mark.parametrize("devices", ["cpu cpu cpu cpu", "sim sim sim sim", "cpu sim cpu sim"])
def test_by_several_threads(devices: str, folder: Path) -> None:
    done = simulated.run(folder, "-c", PROGRAM, *devices.split())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
