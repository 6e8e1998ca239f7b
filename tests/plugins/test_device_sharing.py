"""Tensors of devices between processes: by copy, and as the same memory ("tn.ipc/1" of the
simulated device)."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


PROGRAM = """
import subprocess, sys
import tenon.multiprocessing as mp

CHILD = '''
import sys
import tenon as tn
import tenon.multiprocessing as mp
from multiprocessing.connection import Client
mp.current_process().authkey = b"x"
with Client(sys.argv[1], authkey=b"x") as connection:
    for t in iter(connection.recv, None):
        t.mul_(3)
        connection.send((str(t.device), t.cpu().tolist()))
'''

def exchange(tensors):
    from multiprocessing.connection import Listener
    mp.current_process().authkey = b"x"
    with Listener(None, authkey=b"x") as listener:
        child = subprocess.Popen([sys.executable, "-c", CHILD, listener.address])
        with listener.accept() as connection:
            for t in tensors:
                connection.send(t)
                yield connection.recv()
            connection.send(None)
        assert child.wait() == 0
"""


@pytest.mark.parametrize(
    ("device", "switches"), [("acme:1", {}), ("sim:1", {"LEVEL": 2}), ("sim:0", {"LEVEL": 0})]
)
def test_by_copy(folder: Path, device: str, switches: dict[str, str | int]) -> None:
    text = f"""
x = tn.arange(6.0, device={device!r}).reshape(2, 3)
(answer,) = exchange([x.t()[1:]])
assert answer == ({device!r}, [[3.0, 12.0], [6.0, 15.0]]), answer
assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
"""
    script(folder, PROGRAM + text, **switches)


@pytest.mark.parametrize("pointers", ["address", "opaque"])
def test_the_same_memory(folder: Path, pointers: str) -> None:
    text = """
x = tn.arange(6000.0, device="sim:1").reshape(2, 3000)
answers = list(exchange([x[:, :2], x[1], x[0, 5:6]]))
assert answers[0] == ("sim:1", [[0.0, 3.0], [9000.0, 9003.0]]), answers[0]
assert answers[2] == ("sim:1", [15.0])
y = x.cpu()
assert y[1, 2] == 9006 and y[1, 0] == 27000 and y[0, 5] == 15 and y[0, 6] == 6
handle, file = tn._C._share(x)
assert file == -1
"""
    script(folder, PROGRAM + text, LEVEL=3, POINTERS=pointers)


def test_handles_that_lie(folder: Path) -> None:
    text = """
import os, signal, subprocess, sys
x = tn.ones(8, device="sim")
handle, _ = tn._C._share(x)
for at in range(232):
    damaged = bytearray(handle)
    damaged[at] ^= 0x55
    try:
        tn._C._open_shared(bytes(damaged), -1, tn.float32, (8,), (1,), 0)
    except (ValueError, RuntimeError):
        continue
    raise AssertionError(at)
code = '''
import os, sys, tenon as tn
x = tn.ones(1000, device="sim")
sys.stdout.buffer.write(tn._C._share(x)[0])
'''
gone = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
try:
    tn._C._open_shared(gone, -1, tn.float32, (1000,), (1,), 0)
except ValueError as error:
    assert "gone" in str(error), error
else:
    raise AssertionError("the process is gone")
"""
    script(folder, text, LEVEL=3)
