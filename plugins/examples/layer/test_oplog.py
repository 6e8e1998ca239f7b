"""Tests of the plugin, wherever it is installed: pytest test_oplog.py"""

import os
import tempfile
from pathlib import Path

import tenon as tn

LOG = Path(tempfile.mkdtemp(), "log.txt")
os.environ["OPLOG_FILE"] = str(LOG)  # read when the layer is loaded


def test_log() -> None:
    x, w = tn.ones(2, 3), tn.ones(3, 4, requires_grad=True)
    tn.sin(x)
    with tn.layer("oplog"):
        (x @ w).relu().sum().backward()
    tn.cos(x)
    names = [line.split()[0] for line in LOG.read_text(encoding="utf-8").splitlines()]
    assert {"matmul", "relu", "sum"} <= set(names)
    assert not {"sin", "cos"} & set(names)
    assert w.grad.tolist() == [[2.0] * 4] * 3
