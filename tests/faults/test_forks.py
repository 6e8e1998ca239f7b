"""Forks while other threads are in the middle of something: the child finds no lock taken."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The child has a thread less than the locks know of; its alarm ends it where it waits for one.
WITH_CHILD = """
import os, signal, sys, threading, time
import tenon as tn
over = threading.Event()

def check(task, times=1, pause=0.0):
    for _ in range(times):
        time.sleep(pause)
        child = os.fork()
        if not child:
            signal.alarm(20)
            task()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)

def beside(*tasks):
    def again(task):
        while True:
            task()
            if over.is_set(): break
    threads = [threading.Thread(target=again, args=(task,), daemon=True) for task in tasks]
    for thread in threads: thread.start()
    return threads
"""


def script(text: str, *words: str) -> None:
    job = subprocess.run(
        [sys.executable, "-c", WITH_CHILD + text, *words],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert job.returncode == 0, job.stderr


@pytest.mark.parametrize("pause", [0, 0.0005, 0.001, 0.004, 0.016])
def test_while_a_device_is_used_for_the_first_time(pause: float) -> None:
    script(
        """
def large(): tn.ones(300, 300) @ tn.ones(300, 300)
threads = beside(large, large, large)
over.set()
check(large, pause=float(sys.argv[1]))
for thread in threads: thread.join()
""",
        str(pause),
    )


def test_while_large_blocks_are_taken() -> None:
    """Threads that never ask for a small one."""
    script("""
def large(): tn.empty(1 << 18)
threads = beside(*[large] * 4)
check(large, times=30)
over.set()
for thread in threads: thread.join()
""")
