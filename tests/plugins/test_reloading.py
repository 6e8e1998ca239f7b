"""Plugins come and go while eight threads compute: values stay right, and errors are those that say
that something was retired. Under the thread sanitizer the same tests look for races."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import added
import as_user
import cases
import pytest
import simulated
import tenon as tn

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

THREADS, ROUNDS = 8, 40
PAUSE = 0.01  # seconds for which a plugin is there, so that others get the interpreter's lock


def wait_for(served: list[int]) -> None:
    """Until a thread has used the plugin, which is there: on a busy machine it may be the first."""
    deadline = time.monotonic() + 60
    while sum(served) == 0 and time.monotonic() < deadline:
        time.sleep(PAUSE)
    assert sum(served) > 0


@contextmanager
def computing(work: Callable[[int], object]) -> Iterator[None]:
    """work(i) over and over in threads while the block runs; a failure is raised at its end."""
    done = threading.Event()
    failures: list[BaseException] = []
    gate = threading.Barrier(THREADS + 1)

    def body(i: int) -> None:
        try:
            gate.wait()
            while not done.is_set() and not failures:
                work(i)
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    try:
        gate.wait()
        yield
    finally:
        done.set()
        for t in threads:
            t.join()
    if failures:
        raise failures[0]


KERNELS = """
static tn_status twice(const tn_call *call, const void *args) {
    tn_rows r;
    (void)call;
    for (tn_rows_start(&r, ((const unary *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = 2 * *TN_ROW(const float, r, 1, i);
    return TN_OK;
}
static tn_status negative(const tn_call *call, const void *args) {
    tn_rows r;
    (void)call;
    for (tn_rows_start(&r, ((const unary *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = -*TN_ROW(const float, r, 1, i);
    return TN_OK;
}
"""
REGISTER = """
    const tn_call_iface *c = (const tn_call_iface *)h->query("tn.call/1");
    st = kernel(h, t, "live::twice", 0, twice, TN_F32, 0);
    return st ? st : kernel(h, t, "neg", c->find("neg")->sig, negative, TN_F32, -1);
"""


def test_operators_come_and_go(tmp_path: Path) -> None:
    """An operator with a gradient, and a second kernel for one that is built in."""
    fields = added.POINTWISE + '"live::twice(Tensor x) -> Tensor", .gradient = "x: 2 * grad"'
    library = tmp_path / "live.so"
    cases.compile_text(added.source("live", fields, REGISTER, KERNELS), library)
    tn.load_library(str(library))
    twice = tn.ops.live.twice
    assert (-tn.ones(1)).item() == -1  # the CPU's plugin is there before it is preferred
    served, absent = [0] * THREADS, [0] * THREADS

    def work(i: int) -> None:
        x = tn.full((50,), float(i), requires_grad=True)
        assert (-x).sum().item() == -50 * i
        try:
            y = twice(x)
        except NotImplementedError as err:
            assert "live::twice" in str(err), err
            absent[i] += 1
            return
        y.sum().backward()
        assert y.sum().item() == 100 * i
        assert x.grad is not None and x.grad.tolist() == [2.0] * 50
        served[i] += 1

    with computing(work):
        for k in range(ROUNDS):
            tn.prefer("live" if k % 2 else "tenon-cpu", op="neg")
            tn.retire_plugin("live")
            tn.load_library(str(library))
            time.sleep(PAUSE)
        wait_for(served)
    assert twice(tn.ones(2)).tolist() == [2, 2]


def test_a_device_comes_and_goes(tmp_path: Path) -> None:
    library = tmp_path / "flicker.so"
    cases.compile_text(cases.ACME.replace('"acme"', '"flicker"'), library)
    tn.load_plugin(str(library))
    served, absent = [0] * THREADS, [0] * THREADS

    def work(i: int) -> None:
        try:
            x = tn.full((20,), float(i), device="flicker")
            y = x.to("cpu").sum().item()
        except RuntimeError as err:
            assert "flicker" in str(err), err
            absent[i] += 1
        else:
            assert y == 20 * i
            served[i] += 1

    with computing(work):
        for _ in range(ROUNDS):
            tn.retire_plugin("flicker")
            tn.load_plugin(str(library))
            time.sleep(PAUSE)
        wait_for(served)
    assert tn.ones(2, device="flicker").tolist() == [1, 1]


def test_another_build_of_a_retired_device(tmp_path: Path) -> None:
    """Its tables are others, so that it gets a slot of its own, and the name means the new one."""
    source = Path(__file__).with_name("asked_device.c").read_text(encoding="utf-8")
    cases.add(tmp_path, "asked", source, "-std=c11")
    source = source.replace("hears of programs", "hears of them again")
    cases.add(tmp_path / "new", "asked", source, "-std=c11")
    simulated.script(
        tmp_path,
        f"""
old = tn.ones(3, device="asked")
tn.retire_plugin("asked")
tn.load_plugin({str(tmp_path / "new" / "tenon_asked.so")!r})
new = tn.ones(3, device="asked")
assert (new + 1).tolist() == [2.0] * 3
assert old.cpu().tolist() == [1.0] * 3  # what the retired one holds can be copied away
try:
    old + 1
except RuntimeError as err:
    assert "was retired" in str(err), err
else:
    raise AssertionError("a retired device has computed")
""",
    )
