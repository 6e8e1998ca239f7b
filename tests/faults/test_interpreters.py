"""A second interpreter in the process is told to leave Tenon alone, before and after the first one
has imported it, and the first one computes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def refused():
    code = '''
try:
    import tenon
except ImportError:
    pass
else:
    raise SystemExit("imported")
'''
    number = interpreters.create()
    failed = interpreters.run_string(number, code)
    assert failed is None, failed
    interpreters.destroy(number)

if "before" in sys.argv:
    refused()
import tenon as tn
assert tn.ones(2).sum().item() == 2
refused()
assert tn.ones(2).sum().item() == 2
import importlib
del sys.modules["tenon._C"]
again = importlib.import_module("tenon._C")
assert again.Tensor is tn.Tensor
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_subinterpreters(when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, when], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
