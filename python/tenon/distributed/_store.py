"""Stores: keys and values that processes share, by PyTorch's names.

A HashStore is memory of one process. The others are files of one machine, or of a file system that
all processes see: a log that every change is appended to under a lock, and that each process reads
on from where it was. No socket listens: host and port of a TCPStore name a file, as they do for
`tcp://` addresses (see _place.py).
"""

from __future__ import annotations

import atexit
import copy
import fcntl
import os
import struct
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tenon.distributed import _place
from tenon.distributed._errors import DistNetworkError, DistStoreError, QueueEmptyError

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

_LONGEST_PAUSE = 0.02


def _text(function: str, key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{function}(): expected a key of type str, got {type(key).__name__}")
    return key


def _bytes(function: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(
        f"{function}(): expected a value of type str or bytes, got {type(value).__name__}"
    )


def checked_span(timeout: Any) -> timedelta:
    """A timeout; anything else is an error before something is waited for."""
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}"
        )
    return timeout


class Store:
    """Keys and values that processes share.

    Subclasses that keep them elsewhere define set, get, add, check and what else is used of them.
    Those of this file define `_change` alone: all functions are written with it.
    """

    def __init__(self) -> None:
        self._timeout = timedelta(seconds=300)
        self._of: Store | None = None  # which keeps what both have, where this one is a clone

    @contextmanager
    def _change(self, writes: bool = True) -> Iterator[dict[str, bytes]]:
        """The keys and values of now; what is changed in the `with` block is changed for all."""
        raise NotImplementedError(f"{type(self).__name__} does not define this function")
        yield

    def _alive(self) -> None:
        """Raises where nobody can change the store any more."""

    def _wait(self, ready: Callable[[dict[str, bytes]], Any], timeout: Any, what: str) -> Any:
        """What `ready` makes of the store, as soon as it is not None."""
        span = self._timeout if timeout is None else checked_span(timeout)
        deadline, pause = time.monotonic() + span.total_seconds(), 0.0005
        while True:
            with self._change() as values:
                found = ready(values)
            if found is not None:
                return found
            self._alive()
            if time.monotonic() > deadline:
                milliseconds = int(span.total_seconds() * 1000)
                raise DistStoreError(f"wait timeout after {milliseconds}ms, {what}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    # ---- Values ----

    def set(self, key: str, value: str | bytes) -> None:
        """Gives a key a value."""
        key, value = _text("set", key), _bytes("set", value)
        with self._change() as values:
            values[key] = value

    def get(self, key: str) -> bytes:
        """The value of a key, which is waited for."""
        key = _text("get", key)
        return self._wait(lambda values: values.get(key), None, f"keys: {key}")

    def add(self, key: str, amount: int) -> int:
        """The number that a key has as its value, 0 where it has none, plus an amount."""
        key = _text("add", key)
        if not isinstance(amount, int):
            raise TypeError(f"add(): expected an amount of type int, got {type(amount).__name__}")
        with self._change() as values:
            try:
                total = int(values.get(key, b"0")) + amount
            except ValueError:
                raise ValueError(
                    f"add(): the value of {key!r} is {values[key]!r}, no number"
                ) from None
            values[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Gives a key a value where it has the expected one, or none and "" is expected. Returns
        the value of then; the expected one where there is none."""
        key = _text("compare_set", key)
        expected = _bytes("compare_set", expected_value)
        desired = _bytes("compare_set", desired_value)
        with self._change() as values:
            there = values.get(key)
            if there == expected or (there is None and not expected):
                values[key] = desired
                return desired
        return expected if there is None else there

    def append(self, key: str, value: str | bytes) -> None:
        """Adds to the end of a key's value."""
        key, value = _text("append", key), _bytes("append", value)
        with self._change() as values:
            values[key] = values.get(key, b"") + value

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Gives several keys their values at once."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set(): {len(keys)} keys and {len(values)} values")
        pairs = [(_text("multi_set", k), _bytes("multi_set", v)) for k, v in zip(keys, values)]
        with self._change() as there:
            there.update(pairs)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, which are waited for."""
        return [self.get(key) for key in keys]

    # ---- Keys ----

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of the keys have a value."""
        wanted = [_text("check", k) for k in keys]
        with self._change(writes=False) as values:
            return all(k in values for k in wanted)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all of the keys have a value."""
        if isinstance(keys, (str, bytes)):
            raise TypeError(f"wait(): expected a list of keys, got {keys!r}")
        wanted = [_text("wait", k) for k in keys]

        def ready(values: dict[str, bytes]) -> bool | None:
            return True if all(k in values for k in wanted) else None

        self._wait(ready, timeout, "keys: " + ", ".join(wanted))

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until it was called world_size times with a key that nothing else uses."""
        if isinstance(world_size, bool) or not isinstance(world_size, int) or world_size < 1:
            raise ValueError(f"barrier(): world_size is {world_size!r}, not a number of processes")
        span = self.timeout if timeout is None else checked_span(timeout)
        all_key = f"{_text('barrier', key)}/all"
        if self.add(f"{key}/count", 1) >= world_size:
            self.set(all_key, "")
        self.wait([all_key], span)

    def delete_key(self, key: str) -> bool:
        """Whether there was a value; there is none any more."""
        key = _text("delete_key", key)
        with self._change() as values:
            return values.pop(key, None) is not None

    def num_keys(self) -> int:
        """How many keys have a value, those that stores use themselves among them."""
        with self._change(writes=False) as values:
            return len(values)

    def list_keys(self) -> list[str]:
        """The keys that have a value."""
        with self._change(writes=False) as values:
            return list(values)

    # ---- Queues: a key's values one after the other, under numbers ----

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Adds a value to a queue."""
        data = _bytes("queue_push", value)
        with self._change() as values:
            end = int(values.get(f"{key}/end", b"0"))
            values[f"{key}/{end}"] = data
            values[f"{key}/end"] = str(end + 1).encode()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the first value of a queue, which is waited for."""

        def first(values: dict[str, bytes]) -> bytes | None:
            at = int(values.get(f"{key}/start", b"0"))
            if at == int(values.get(f"{key}/end", b"0")):
                return None
            values[f"{key}/start"] = str(at + 1).encode()
            return values.pop(f"{key}/{at}")

        if block:
            return self._wait(first, None, f"queue: {key}")
        with self._change() as values:
            found = first(values)
        if found is None:
            raise QueueEmptyError("queue is empty")
        return found

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        with self._change(writes=False) as values:
            return int(values.get(f"{key}/end", b"0")) - int(values.get(f"{key}/start", b"0"))

    # ---- Waiting ----

    @property
    def timeout(self) -> timedelta:
        """How long keys are waited for."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """How long keys are waited for from here on."""
        self._timeout = checked_span(timeout)

    def has_extended_api(self) -> bool:
        """Whether append, multi_set and multi_get are there."""
        return True

    def clone(self) -> Self:
        """The same store with a timeout of its own, for another thread."""
        found = copy.copy(self)
        found._of = self
        return found


class HashStore(Store):
    """A store of one process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._lock, self._values = threading.RLock(), {}

    @contextmanager
    def _change(self, writes: bool = True) -> Iterator[dict[str, bytes]]:
        with self._lock:
            yield self._values


# ---- Files ---------------------------------------------------------------------------------------

_RECORD = struct.Struct("<IQ")  # bytes of the key, bytes of the value; _GONE: the key has no value
_GONE = (1 << 64) - 1


class _Position:
    """How much of a file was read."""

    read = 0


class _Log(Store):
    """A store in a file that changes are appended to."""

    def __init__(self, path: str, flags: int = os.O_CREAT) -> None:
        super().__init__()
        self._path, self._mutex = path, threading.RLock()
        self._values: dict[str, bytes] = {}
        self._log = _Position()
        self._file = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self._file)

    def _follow(self) -> None:
        """Reads what was appended since."""
        size = os.fstat(self._file).st_size
        data = os.pread(self._file, size - self._log.read, self._log.read)
        at = 0
        while at + _RECORD.size <= len(data):
            keys, values = _RECORD.unpack_from(data, at)
            start = at + _RECORD.size
            end = start + keys + (0 if values == _GONE else values)
            if end > len(data):
                break  # a process was killed while it wrote: what comes next goes there
            key = data[start : start + keys].decode()
            if values == _GONE:
                self._values.pop(key, None)
            else:
                self._values[key] = data[start + keys : end]
            at = end
        self._log.read += at

    def _append(self, changes: dict[str, bytes | None]) -> None:
        records = []
        for key, value in changes.items():
            name = key.encode()
            records.append(_RECORD.pack(len(name), _GONE if value is None else len(value)))
            records.append(name + (value or b""))
        data = b"".join(records)
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], self._log.read + done)
        os.ftruncate(self._file, self._log.read + len(data))
        self._log.read += len(data)

    @contextmanager
    def _change(self, writes: bool = True) -> Iterator[dict[str, bytes]]:
        with self._mutex:
            fcntl.flock(self._file, fcntl.LOCK_EX if writes else fcntl.LOCK_SH)
            try:
                self._follow()
                before = dict(self._values) if writes else {}
                yield self._values
                if writes and self._values != before:
                    changes: dict[str, bytes | None] = {
                        k: v for k, v in self._values.items() if before.get(k) != v
                    }
                    changes.update(dict.fromkeys(before.keys() - self._values.keys()))
                    self._append(changes)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)


class FileStore(_Log):
    """A store in a file that all processes see. The last of world_size processes removes it."""

    _USERS = "refcount/"

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None:
        super().__init__(os.fspath(file_name))
        self._world_size = world_size
        if world_size > 0:
            self.add(self._USERS, 1)
            # Closing the file comes later: it was registered earlier.
            weakref.finalize(self, _leave, self._path, world_size, os.getpid())

    @property
    def path(self) -> str:
        """The file."""
        return self._path


def _leave(path: str, world_size: int, process: int) -> None:
    """One process less uses a file; the last one removes it."""
    if os.getpid() != process or not os.path.exists(path):
        return
    if _Log(path, 0).add("left/", 1) == world_size:
        Path(path).unlink(missing_ok=True)


class TCPStore(_Log):
    """A store of the processes of this machine, under the name of a host and a port.

    One process is its master: the store is there as long as that one is.
    """

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        del master_listen_fd, use_libuv
        checked_span(timeout)
        if not 0 <= port < 1 << 16:
            raise ValueError(f"TCPStore(): port {port} is none")
        folder = _place.own_folder(host_name)
        while port == 0:
            wanted = _place.new_port()
            port = 0 if (folder / f"store-{wanted}").exists() else wanted
        self.host, self.port = host_name, port
        self._owner_path = folder / f"store-{port}"
        self._world_size = world_size
        if is_master and not (multi_tenant and self._has_owner(self._owner_path)):
            data = self._take(timeout)
        else:
            data = self._find(timeout)
        super().__init__(data, 0)
        self._timeout = timeout
        with self._change() as values:
            values["init/"] = str(int(values.get("init/", b"0")) + 1).encode()
        if is_master and wait_for_workers and world_size:
            self._wait_for_workers(world_size)

    def _wait_for_workers(self, world_size: int) -> None:
        def ready(values: dict[str, bytes]) -> bool | None:
            return True if int(values["init/"]) >= world_size else None

        try:
            self._wait(ready, None, "")
        except DistStoreError:
            there = int(self.get("init/"))
            raise DistStoreError(
                f"Timed out after {self._timeout.total_seconds():g} seconds waiting for clients. "
                f"{there}/{world_size} clients joined."
            ) from None

    @staticmethod
    def _has_owner(path: Path) -> bool:
        """Whether the process that made a store still lives."""
        try:
            return _place.is_held(path)
        except FileNotFoundError:
            return False

    def _take(self, timeout: timedelta) -> str:
        """Makes the store; what a killed master has left is removed."""
        folder, token = self._owner_path.parent, uuid.uuid4().hex
        data, own = folder / f"store-{token}.log", folder / f"store-{token}"
        data.touch(0o600)
        own.write_text(data.name)
        self._owner = os.open(own, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        try:
            while True:
                try:
                    os.link(own, self._owner_path)
                    break
                except FileExistsError:
                    if self._has_owner(self._owner_path):
                        data.unlink()
                        os.close(self._owner)
                        raise DistNetworkError(
                            f"The server socket has failed to listen: {self.host}:{self.port} is "
                            "the name of another store (EADDRINUSE, address already in use)"
                        ) from None
                    self.remove_dead(self._owner_path)
        finally:
            own.unlink()
        end = weakref.finalize(self, _remove, self._owner_path, data, self._owner, os.getpid())
        end.atexit = True
        return str(data)

    @classmethod
    def remove_dead(cls, path: Path) -> None:
        """Removes a store whose master was killed."""
        if cls._has_owner(path):
            return
        try:
            (path.parent / path.read_text()).unlink(missing_ok=True)
            path.unlink()
        except FileNotFoundError:
            pass

    def _find(self, timeout: timedelta) -> str:
        """The file of a store whose master may come yet."""
        deadline, pause = time.monotonic() + timeout.total_seconds(), 0.0005
        while True:
            if self._has_owner(self._owner_path):
                try:
                    return str(self._owner_path.parent / self._owner_path.read_text())
                except FileNotFoundError:
                    pass
            if time.monotonic() > deadline:
                raise DistNetworkError(
                    f"The client socket has timed out after {timeout.total_seconds():g} s while "
                    f"trying to connect to ({self.host}, {self.port})."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _alive(self) -> None:
        if not os.path.exists(self._path) or not self._has_owner(self._owner_path):
            raise DistNetworkError(
                f"Connection was likely closed: the process of the store {self.host}:{self.port} "
                "has ended"
            )

    @property
    def world_size(self) -> int | None:
        """How many processes use it."""
        return self._world_size


def _remove(owner_path: Path, data: Path, owner: int, process: int) -> None:
    if os.getpid() == process:
        data.unlink(missing_ok=True)
        owner_path.unlink(missing_ok=True)
        os.close(owner)


class PrefixStore(Store):
    """Another store whose keys begin with a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = _text("PrefixStore", prefix), store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        """The store under all prefixes."""
        inner = self.underlying_store
        return inner._underlying_non_prefix_store if isinstance(inner, PrefixStore) else inner

    @property
    def timeout(self) -> timedelta:
        """That of the other store."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets that of the other store."""
        self.underlying_store.set_timeout(timeout)

    def num_keys(self) -> int:
        """How many keys the other store has."""
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        """The keys with this prefix, without it."""
        start = f"{self.prefix}/"
        keys = self.underlying_store.list_keys()
        return [k.removeprefix(start) for k in keys if k.startswith(start)]

    def has_extended_api(self) -> bool:
        """Whether the other store has it."""
        return self.underlying_store.has_extended_api()

    def clone(self) -> Self:
        """The same prefix of a clone of the other store."""
        found = super().clone()
        found.underlying_store = self.underlying_store.clone()
        return found


def _forward(name: str, several: bool) -> Any:
    def call(self: PrefixStore, key: Any, *args: Any, **kwargs: Any) -> Any:
        named = (
            [f"{self.prefix}/{_text(name, k)}" for k in key]
            if several
            else f"{self.prefix}/{_text(name, key)}"
        )
        return getattr(self.underlying_store, name)(named, *args, **kwargs)

    call.__name__, call.__doc__ = name, getattr(Store, name).__doc__
    return call


for _name in ("set", "get", "add", "compare_set", "append", "delete_key", "queue_push",
              "queue_pop", "queue_len"):  # fmt: skip
    setattr(PrefixStore, _name, _forward(_name, False))
for _name in ("check", "wait", "multi_get", "multi_set"):
    setattr(PrefixStore, _name, _forward(_name, True))
del _name


def meeting_url(store: Store, rank: int) -> str:
    """Where processes that share a store meet: rank 0 makes a folder and says which."""
    if rank == 0:
        folder = _place.own_folder("localhost") / f"meeting-{uuid.uuid4().hex}"
        store.set("tenon/meeting", str(folder))
        atexit.register(_remove_folder, f"{folder}.tenon")
    return f"file://{store.get('tenon/meeting').decode()}"


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass
