"""A layer of a plugin: plugins/examples/layer logs every operator call of the threads that ask."""

from __future__ import annotations

import re
from pathlib import Path

import as_user
import pytest

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

SCRIPT = """
import threading
import tenon as tn
x, w = tn.ones(2, 3), tn.ones(3, 4, requires_grad=True)
tn.sin(x)
with tn.layer("oplog"):
    y = (x @ w).relu().sum()
    parts = x.split(1)
    other = threading.Thread(target=lambda: tn.cos(x))
    other.start()
    other.join()
    y.backward()
    try:
        x @ tn.ones(2, 2)
    except RuntimeError:
        pass
tn.tan(x)
assert w.grad.tolist() == [[2.0] * 4] * 3
try:
    tn.layer("nothing of that name")
except ImportError as err:
    assert "nothing of that name" in str(err)
else:
    raise AssertionError
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plugins")
    source = as_user.EXAMPLES / "layer"
    as_user.build(source / "oplog.c", source / "tenon_oplog.json", out)
    return out


def test_log(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = as_user.run(folder, "-c", SCRIPT, OPLOG_FILE=str(log))
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    names = [line.split()[0] for line in lines]
    for name in ("matmul", "relu", "sum"):
        assert name in names, names
    assert not {"sin", "cos", "tan"} & set(names), names  # outside, and another thread
    assert names.index("relu") < names.index("sum") < len(names) - 2  # backward is seen, too
    relu = lines[names.index("relu")]
    assert re.fullmatch(r"relu 8:\[2,4\] -> 8:\[2,4\] \d+\.\d us", relu), relu
    assert any(line.startswith("split") and line.count("8:[1,3]") == 2 for line in lines), lines
    assert any(line.startswith("matmul ") and line.endswith(" failed") for line in lines), lines
