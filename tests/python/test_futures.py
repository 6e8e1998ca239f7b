"""Futures: values and exceptions that other threads set, once, and what waits for them."""

from __future__ import annotations

import threading

import pytest
import tenon as tn
from tenon.futures import Future, collect_all, wait_all


def test_a_value_is_set_once() -> None:
    made: Future[int] = Future()
    assert not made.done()
    with pytest.raises(RuntimeError, match="not done"):
        made.value()
    made.set_result(3)
    assert made.done() and made.value() == made.wait() == 3
    for again in (lambda: made.set_result(4), lambda: made.set_exception(ValueError("x"))):
        with pytest.raises(RuntimeError, match="set before"):
            again()
    assert made.value() == 3


def test_an_exception_is_raised_where_it_is_waited_for() -> None:
    made: Future[int] = Future()
    with pytest.raises(AssertionError, match="not an Exception"):
        made.set_exception("text")  # type: ignore[arg-type]
    assert not made.done()
    made.set_exception(KeyError("lost"))
    for look in (made.wait, made.value):
        with pytest.raises(KeyError, match="lost"):
            look()


def test_waiting_ends_when_another_thread_sets_it() -> None:
    made: Future[tn.Tensor] = Future(devices=["cpu"])
    seen: list[list[float]] = []
    waiting = [threading.Thread(target=lambda: seen.append(made.wait().tolist())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    made.set_result(tn.ones(2))
    for thread in waiting:
        thread.join(30)
    assert seen == [[1, 1]] * 3


def test_callbacks_run_in_order_and_at_once_where_it_is_done() -> None:
    made: Future[int] = Future()
    seen: list[tuple[str, int]] = []
    made.add_done_callback(lambda f: seen.append(("first", f.value())))
    made.add_done_callback(lambda f: seen.append(("second", f.value())))
    assert seen == []
    made.set_result(5)
    assert seen == [("first", 5), ("second", 5)]
    made.add_done_callback(lambda f: seen.append(("late", f.value())))
    assert seen[2:] == [("late", 5)]


def test_what_follows() -> None:
    made: Future[int] = Future()
    doubled = made.then(lambda f: f.wait() * 2)
    told = doubled.then(lambda f: f"it is {f.wait()}")
    assert not doubled.done() and not told.done()
    made.set_result(4)
    assert doubled.wait() == 8 and told.wait() == "it is 8"
    failing = made.then(lambda f: f.wait() / 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    with pytest.raises(ZeroDivisionError):
        failing.then(lambda f: f.wait()).wait()
    assert failing.then(lambda f: "caught").wait() == "caught"


def test_all_of_them() -> None:
    several: list[Future[int]] = [Future() for _ in range(3)]
    together = collect_all(several)
    for i in (2, 0):
        several[i].set_result(i)
        assert not together.done()
    several[1].set_result(1)
    assert together.wait() == several and wait_all(several) == [0, 1, 2]
    assert collect_all([]).wait() == [] and wait_all([]) == []
    failed: Future[int] = Future()
    failed.set_exception(OSError("gone"))
    assert collect_all([several[0], failed]).done()
    with pytest.raises(OSError, match="gone"):
        wait_all([several[0], failed])
