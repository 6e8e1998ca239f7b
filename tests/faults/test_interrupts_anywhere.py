"""Ctrl-C between any two steps of a program: what was entered is left, what was begun is whole."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn

HERE = Path(__file__).parent
PACKAGE = str(Path(tn.__file__).parent)

# A region, and what tells whether the thread is in one.
REGIONS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "autocast": (lambda: tn.autocast("cpu"), lambda: tn.is_autocast_enabled("cpu")),
    "autocast that is off": (
        lambda: tn.autocast("cpu", enabled=False), lambda: tn.is_autocast_enabled("cpu")),
    "no_grad": (tn.no_grad, tn.is_grad_enabled),
    "inference_mode": (tn.inference_mode, tn.is_inference_mode_enabled),
    "detect_anomaly": (tn.autograd.detect_anomaly, tn.is_anomaly_enabled),
    "saved_tensors_hooks": (
        lambda: tn.autograd.graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t),
        lambda: float(tn.ones((), requires_grad=True).exp().grad_fn._saved_result) > 3),
    "DisableTorchFunctionSubclass": (
        tn._C.DisableTorchFunctionSubclass, lambda: type(tn.ones(1).as_subclass(Sub) + 1) is Sub),
}  # fmt: skip


class Sub(tn.Tensor):
    pass


def interrupted_at(n: int, call: Callable[[], None]) -> bool:
    """Runs a call with KeyboardInterrupt at the n-th step of the package; False: it has fewer."""
    steps = 0

    def step(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(PACKAGE) or event not in ("call", "line"):
            return step
        steps += 1
        if steps == n:
            raise KeyboardInterrupt
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("name", REGIONS)
def test_regions_are_left(name: str) -> None:
    make, is_in = REGIONS[name]

    def use() -> None:
        with region:
            pass

    before = is_in()
    for n in range(1, 200):
        region = make()
        more = interrupted_at(n, use)
        assert is_in() == before, f"step {n}"
        if not more:
            return
    pytest.fail("it does not end")


def test_autocast_regions_nest() -> None:
    region = tn.autocast("cpu")
    with region, region, tn.autocast("cpu", enabled=False):
        assert not tn.is_autocast_enabled("cpu")
        with region:
            assert tn.is_autocast_enabled("cpu")
        other = copy.deepcopy(region)
    assert not tn.is_autocast_enabled("cpu")
    with other:
        assert tn.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="not entered"):
        other.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not entered"):
        region.__exit__(None, None, None)


# interrupted.py has "queues", too, to be run by hand: after Ctrl-C inside of it, Python's own
# multiprocessing may wait for good, as docs/security.md says.
PROGRAMS = {"training": 0.05, "saving": 0.02, "compiling": 0.2, "hooks": 0.03, "threads": 0.05}


@pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="takes its time")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_go_on(name: str) -> None:
    command = [sys.executable, str(HERE / "interrupted.py"), name, "1", "12", str(PROGRAMS[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    # Python ends by SIGINT when one was raised within exec() of a text, whoever caught it.
    assert done.stdout == "good\n", (done.returncode, done.stderr[-4000:])
    assert done.returncode in (0, -signal.SIGINT)
