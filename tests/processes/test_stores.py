"""Stores: PyTorch's semantics, for each kind; threads and processes that change one at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tenon.distributed import (
    DistNetworkError,
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    QueueEmptyError,
    Store,
    TCPStore,
    _place,
)

SHORT = timedelta(milliseconds=60)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = {
        "hash": HashStore,
        "file": lambda: FileStore(tmp_path / "store", 1),
        "tcp": lambda: TCPStore("localhost", 0, 1, True),
        "prefix": lambda: PrefixStore("some", HashStore()),
    }[request.param]()
    yield made


def test_clones_and_barriers(store: Store) -> None:
    other = store.clone()
    assert type(other) is type(store)
    other.set_timeout(timedelta(seconds=7))
    store.set("a", "x")
    assert other.get("a") == b"x" and other.add("n", 2) == 2 and store.add("n", 1) == 3
    come: list[int] = []

    def arrive(one: Store) -> None:
        one.barrier("all", 3, timedelta(seconds=20))
        come.append(1)

    threads = [threading.Thread(target=arrive, args=(s,)) for s in (other, store.clone())]
    for thread in threads:
        thread.start()
    with pytest.raises(DistStoreError, match="wait timeout after 60ms, keys: "):
        store.barrier("nobody", 2, SHORT)
    assert not come
    store.barrier("all", 3)
    for thread in threads:
        thread.join()
    assert len(come) == 2
    with pytest.raises(ValueError, match="world_size is 0"):
        store.barrier("all", 0)
    del store
    assert other.get("n") == b"3"


def test_values(store: Store) -> None:
    before = store.num_keys()
    store.set("a", "x")
    store.set("b", b"\x00\xff")
    assert store.get("a") == b"x" and store.get("b") == b"\x00\xff"
    assert store.add("n", 3) == 3 and store.add("n", -1) == 2 and store.get("n") == b"2"
    assert store.num_keys() == before + 3
    assert store.check(["a", "b"]) and not store.check(["a", "c"]) and store.check([])
    assert store.delete_key("a") and not store.delete_key("a") and not store.check(["a"])
    store.append("b", "12")
    assert store.get("b") == b"\x00\xff12"
    store.multi_set(["k", "l"], ["1", "2"])
    assert store.multi_get(["l", "k"]) == [b"2", b"1"]
    with pytest.raises(ValueError, match="b' is .*, no number"):
        store.add("b", 1)
    for amount in ("x", 1.5, None):
        with pytest.raises(TypeError, match=r"add\(\): expected an amount of type int, got"):
            store.add("n", amount)
    with pytest.raises(TypeError, match="expected a key of type str, got int"):
        store.set(1, "x")
    with pytest.raises(TypeError, match="expected a value of type str or bytes, got int"):
        store.set("a", 1)


def test_compare_set(store: Store) -> None:
    assert store.compare_set("q", "", "v1") == b"v1"
    assert store.compare_set("q", "bad", "v2") == b"v1"
    assert store.compare_set("q", "v1", "v3") == b"v3"
    assert store.compare_set("none", "foo", "bar") == b"foo" and not store.check(["none"])


def test_waiting_ends(store: Store) -> None:
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    with pytest.raises(DistStoreError, match="after 60ms, keys: .*nope"):
        store.get("nope")
    with pytest.raises(DistStoreError, match="after 20ms"):
        store.wait(["nope"], timedelta(milliseconds=20))
    later = threading.Timer(0.02, lambda: store.set("late", "come"))
    later.start()
    store.wait(["late"], timedelta(seconds=20))
    assert store.get("late") == b"come"


def test_queues(store: Store) -> None:
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2
    assert [store.queue_pop("q"), store.queue_pop("q", False)] == [b"1", b"2"]
    with pytest.raises(QueueEmptyError, match="queue is empty"):
        store.queue_pop("q", False)


def test_prefixes_share_a_store() -> None:
    whole = HashStore()
    left, right = PrefixStore("left", whole), PrefixStore("right", PrefixStore("deep", whole))
    left.set("k", "1")
    right.set("k", "2")
    assert sorted(whole.list_keys()) == ["deep/right/k", "left/k"]
    assert (left.get("k"), right.get("k")) == (b"1", b"2") and left.list_keys() == ["k"]
    under = PrefixStore("a", PrefixStore("b", whole := HashStore()))
    assert under._underlying_non_prefix_store is whole


def test_users_of_a_file_change_it_at_once(tmp_path: Path) -> None:
    path, users = tmp_path / "log", 4
    stores = [FileStore(path, users) for _ in range(users)]

    def count(own: FileStore, name: str) -> None:
        for i in range(50):
            own.add("sum", 1)
            own.set(name, str(i))

    threads = [threading.Thread(target=count, args=(own, f"k{i}")) for i, own in enumerate(stores)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {own.get("sum") for own in stores} == {b"200"}
    assert stores[0].multi_get([f"k{i}" for i in range(users)]) == [b"49"] * users
    # Half a record, as of a writer that was killed, is written over.
    with path.open("ab") as file:
        file.write(b"\x05\x00\x00\x00" + b"\x01" * 200)
    stores[1].set("after", "all")
    assert stores[2].get("after") == b"all" and FileStore(path).get("after") == b"all"
    while stores:
        assert path.exists()
        stores.pop()
    assert not path.exists()


def test_users_of_a_file_follow_what_another_takes_away(tmp_path: Path) -> None:
    one, other = (FileStore(tmp_path / "log", 2) for _ in range(2))
    one.set("first", "")
    one.set("second", "2")
    assert one.delete_key("second") and one.delete_key("first")
    one.multi_set(["third", "fourth"], ["", "4"])
    assert not other.check(["first"]) and not other.check(["second"])
    assert other.multi_get(["third", "fourth"]) == [b"", b"4"]


def test_what_a_killed_master_has_left_in_part_is_removed() -> None:
    """Its data are gone already; the name that leads to them is not."""
    port = TCPStore("localhost", 0, 1, True).port
    left = _place.own_folder("localhost") / f"store-{port}"
    left.write_text("store-of-nobody.log", encoding="utf-8")
    again = TCPStore("localhost", port, 1, True, timedelta(seconds=20))
    again.set("k", "v")
    assert TCPStore("localhost", port).get("k") == b"v"
    del again
    assert not left.exists()


_MASTER = """
import sys, time
from tenon.distributed import TCPStore
store = TCPStore("localhost", int(sys.argv[1]), None, True)
store.set("up", "1")
print("up", flush=True)
time.sleep(60)
"""


def test_a_store_ends_with_its_master() -> None:
    port = TCPStore("localhost", 0, 1, True).port
    job = subprocess.Popen(
        [sys.executable, "-c", _MASTER, str(port)], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None and job.stdout.readline() == "up\n"
    client = TCPStore("localhost", port)
    assert client.get("up") == b"1"
    with pytest.raises(DistNetworkError, match="address already in use"):
        TCPStore("localhost", port, 1, True)
    job.send_signal(signal.SIGKILL)
    job.wait()
    with pytest.raises(DistNetworkError, match="has ended"):
        client.get("more")
    with pytest.raises(DistNetworkError, match="timed out after 0.06 s"):
        TCPStore("localhost", port, timeout=SHORT)
    left = _place.own_folder("localhost") / f"store-{port}"
    again = TCPStore("localhost", port, 1, True)  # what the killed one has left is removed
    assert not again.check(["up"])
    del again
    assert not left.exists()
    with pytest.raises(
        DistStoreError,
        match=r"^Timed out after 0.06 seconds waiting for clients. 1/2 clients joined",
    ):
        TCPStore("localhost", 0, 2, True, SHORT)
    with pytest.raises(ValueError, match="another machine"):
        TCPStore("192.0.2.1", 29500)
    for port in (-1, 1 << 16):
        with pytest.raises(ValueError, match=f"port {port} is none"):
            TCPStore("localhost", port)


def test_a_copy_of_the_process_leaves_the_store_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "log", 1)
    pid = os.fork()
    if pid == 0:
        del store
        os._exit(0)
    os.waitpid(pid, 0)
    store.set("k", "v")
    assert (tmp_path / "log").exists()


def test_what_is_no_timeout(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "log", 1)
    for wrong in (3, "1", 0.5):
        for call in (
            lambda w=wrong: store.wait(["k"], w),
            lambda w=wrong: store.set_timeout(w),
            lambda w=wrong: TCPStore("localhost", 0, 1, True, w),
        ):
            with pytest.raises(TypeError, match="of type datetime.timedelta"):
                call()
    with pytest.raises(TypeError, match="expected a list of keys"):
        store.wait("key", SHORT)
