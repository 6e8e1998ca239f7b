"""Hosts of one machine: network namespaces, joined by a switch that loses packets and cuts links.

Each host has a device whose frames this process carries to the others, so that nothing is asked of
the kernel but namespaces and TAP devices. It needs root and Debian's iproute2.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator

import pytest

DEVICE = "wire"
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def need() -> None:
    if os.geteuid() != 0 or not shutil.which("ip") or not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("hosts of one machine need root, iproute2 and /dev/net/tun")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())


class Hosts:
    """`names`: namespaces whose device is up, with addresses 10.77.0.1 and on."""

    def __init__(self, count: int) -> None:
        self.names: list[str] = []
        self.loss = 0.0  # how many of the frames get lost, 0 to 1
        self.cut: set[int] = set()  # hosts that nothing reaches or leaves
        self.carried = self.lost = 0
        self._taps: list[int] = []
        self._stop_reader, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._carry)
        try:
            for i in range(count):
                self._add(f"tenon{os.getpid()}-{i}", f"t{os.getpid()}-{i}", i)
        except OSError as err:
            self._remove()
            pytest.skip(f"this machine makes no network namespace: {err}")
        self._thread.start()

    def _add(self, name: str, device: str, number: int) -> None:
        _ip("netns", "add", name)
        self.names.append(name)
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._taps.append(tap)
        request = struct.pack("16sH22x", device.encode(), _IFF_TAP | _IFF_NO_PI)
        fcntl.ioctl(tap, _TUNSETIFF, request)
        _ip("link", "set", device, "netns", name, "name", DEVICE)
        _ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", DEVICE)
        _ip("-n", name, "link", "set", DEVICE, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _carry(self) -> None:
        dice = random.Random(7)
        while True:
            ready, _, _ = select.select([self._stop_reader, *self._taps], [], [])
            if self._stop_reader in ready:
                return
            for tap in ready:
                with contextlib.suppress(BlockingIOError):
                    self._pass_on(self._taps.index(tap), os.read(tap, 65536), dice)

    def _pass_on(self, source: int, frame: bytes, dice: random.Random) -> None:
        for i, tap in enumerate(self._taps):
            if i == source:
                continue
            if self.cut & {i, source} or dice.random() < self.loss:
                self.lost += 1
                continue
            self.carried += 1
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(tap, frame)

    def start(self, host: int, command: list[str], **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], *command],
            env={**os.environ, **variables}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        os.write(self._stop, b"x")
        self._thread.join()
        self._remove()

    def _remove(self) -> None:
        for file in (*self._taps, self._stop, self._stop_reader):
            os.close(file)
        for name in self.names:
            _ip("netns", "del", name)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    need()
    made = Hosts(count)
    try:
        yield made
    finally:
        made.close()
