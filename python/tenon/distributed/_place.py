"""Where this process stands among others: what its launcher says, and where they meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from tenon.distributed._errors import DistNetworkError

# (rank, world size, local rank, local size) in the environment of each launcher, in this order.
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}  # fmt: skip


def mpi_launcher(environment: Mapping[str, str] = os.environ) -> str | None:
    """Which MPI started this process: "openmpi", "mpich", or None."""
    for name in ("openmpi", "mpich"):
        if _LAUNCHERS[name][0] in environment:
            return name
    return None


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name} is {text!r}, expected a number") from None


def ask_launcher(
    environment: Mapping[str, str] = os.environ, rank_said: int = -1, size_said: int = -1
) -> tuple[int, int] | None:
    """Rank and number of processes, where a launcher says both; contradictions are errors.

    rank_said and size_said are what the program says (-1: nothing), and stand for the one that is
    missing beside the other.
    """
    found: tuple[str, int, int] | None = None
    for launcher, (rank, size, *_) in _LAUNCHERS.items():
        there = [n for n in (rank, size) if n in environment]
        if not there:
            continue
        if len(there) == 1:
            missing, said = (size, size_said) if there[0] == rank else (rank, rank_said)
            if said < 0:
                raise ValueError(
                    f"{there[0]} is set and {missing} is not: the environment of a launcher has "
                    "both"
                )
            environment = {**environment, missing: str(said)}
        place = _number(rank, environment[rank]), _number(size, environment[size])
        if place[1] < 1 or not 0 <= place[0] < place[1]:
            raise ValueError(f"{rank}={place[0]} is no rank of {size}={place[1]} processes")
        if found is not None and found[1:] != place and launcher != "slurm":
            raise ValueError(
                f"{found[0]} says rank {found[1]} of {found[2]}, {launcher} says rank {place[0]} "
                f"of {place[1]}"
            )
        found = found or (launcher, *place)
    return None if found is None else found[1:]


# ---- Where processes meet ------------------------------------------------------------------------


def _is_here(host: str) -> bool:
    """Whether a name is one of this machine."""
    if host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname()):
        return True
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return False
    if address.startswith("127."):
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))  # only addresses of this machine can be bound
        except OSError:
            return False
    return True


def new_port() -> int:
    """A number of a port, which is the name of a store: nobody listens there."""
    return 20000 + uuid.uuid4().int % 40000


def own_folder(host: str) -> Path:
    """A folder for files of this user's processes on this machine, which is nobody else's. Another
    machine's host is an error."""
    if not _is_here(host):
        raise ValueError(
            f"init_method: {host} is another machine. Processes of several machines meet "
            "through MPI, or by init_method='file:///a/folder/of/all/machines/name'"
        )
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"tenon-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or state.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user alone")
    if state.st_mode & 0o077:
        raise PermissionError(f"{folder} can be entered by other users")
    return folder


def meeting_place(url: str) -> Path:
    """The folder in which the processes of a URL find each other."""
    parts = urlparse(url)
    if parts.scheme == "file":
        if not parts.path:
            raise ValueError("init_method: file:// needs the path of a file")
        return Path(f"{parts.path}.tenon")
    if parts.scheme != "tcp":
        raise ValueError(f"init_method: expected env://, tcp:// or file://, not {url!r}")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"init_method: {url!r} needs a host and a port")
    return own_folder(parts.hostname) / f"{parts.hostname}-{parts.port}"


def remove_what_killed_processes_left() -> None:
    """Places and stores of this user whose owners are dead."""
    from tenon.distributed._store import TCPStore

    folder = own_folder("localhost")
    for entry in list(folder.iterdir()):
        if entry.is_dir():
            Meeting.remove_dead(entry, youngest_seconds=60.0)
        elif entry.name.startswith("store-") and entry.name[6:].isdigit() and len(entry.name) < 12:
            TCPStore.remove_dead(entry)


def rank_and_size(url: str) -> tuple[int | None, int | None]:
    """What the query of a URL says: tcp://host:port?rank=0&world_size=2."""
    query = parse_qs(urlparse(url).query)
    numbers = [_number(n, query[n][0]) if n in query else None for n in ("rank", "world_size")]
    return numbers[0], numbers[1]


def environment_url(environment: Mapping[str, str] = os.environ) -> str:
    """env:// as a tcp:// URL."""
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in environment:
            raise ValueError(
                f"Error initializing torch.distributed using env:// rendezvous: environment "
                f"variable {name} expected, but not set"
            )
    _number("MASTER_PORT", environment["MASTER_PORT"])
    return f"tcp://{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"


def is_held(path: Path) -> bool:
    """Whether the process that has made a file still lives: it holds a lock on it."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class Meeting:
    """A folder of the processes of one run. Rank 0 makes it and holds a lock on its file `owner` as
    long as it lives, so that what a run has left behind is not taken for one that goes on."""

    def __init__(self, place: Path, rank: int, size: int, number: int, seconds: float) -> None:
        self._lock: int | None = None
        self._own: int | None = None
        prefix = f"{number}-"
        if rank == 0:
            self.remove_dead(place)
            self.folder = place / f"{prefix}{uuid.uuid4().hex}"
            self._make(size)
        else:
            self.folder = self._find(place, prefix, size, rank, time.monotonic() + seconds)
        try:
            # Locked before it has its name, and as long as the process lives.
            own = self.folder / f".rank-{rank}-{uuid.uuid4().hex}"
            self._own = os.open(own, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._own, fcntl.LOCK_EX)
            os.write(self._own, str(os.getpid()).encode())
            os.link(own, self.folder / f"rank-{rank}")
            own.unlink()
        except FileExistsError:
            own.unlink()
            self.leave()
            raise ValueError(f"there are two processes of rank {rank}") from None

    def _make(self, size: int) -> None:
        hidden = self.folder.with_name(f".{self.folder.name}")
        made = False
        while not made:
            hidden.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A run that ends just now may have removed the place.
            with contextlib.suppress(FileNotFoundError):
                hidden.mkdir(mode=0o700)
                made = True
        self._lock = os.open(hidden / "owner", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, str(size).encode())
        hidden.rename(self.folder)

    def gone(self) -> list[str]:
        """The ranks whose processes have ended or left the group."""
        if not self.folder.exists():
            return ["rank 0 has ended or left"]
        files = sorted(self.folder.glob("rank-*"), key=lambda p: int(p.name[5:]))
        return [text for file in files if (text := self._how_it_went(int(file.name[5:])))]

    def missing(self, size: int) -> str:
        """The ranks of a run that have not come, or have ended: text for an error, or ""."""
        late = [rank for rank in range(size) if not (self.folder / f"rank-{rank}").exists()]
        found = [f"rank {rank} of {size} has not come" for rank in late]
        return ", ".join([*found, *(self.gone() if found else ())])

    def _how_it_went(self, rank: int) -> str | None:
        """That a rank has ended or left the group."""
        if self._alive(self.folder, f"rank-{rank}"):
            return None
        try:
            process, *left = (self.folder / f"rank-{rank}").read_text().split()
        except OSError:
            return None
        return f"rank {rank} (process {process}) has {'left' if left else 'ended'}"

    def why_none_sends(self, ranks: list[int]) -> str | None:
        """Why nobody should wait for a message of any of these ranks: one of them has died, and it
        may have been the one that sends; or all of them have left."""
        if not self.folder.exists():
            return "rank 0 has ended or left" if ranks == [0] else None
        gone = [text for rank in ranks if (text := self._how_it_went(rank))]
        died = [text for text in gone if text.endswith("ended")]
        return ", ".join(died or gone) if died or len(gone) == len(ranks) else None

    @staticmethod
    def _alive(folder: Path, name: str = "owner") -> bool:
        """Whether the process that has made a file still lives."""
        try:
            return is_held(folder / name)
        except OSError:
            return False

    @classmethod
    def remove_dead(cls, place: Path, youngest_seconds: float = 0.0) -> None:
        """Removes what runs have left whose rank 0 was killed, and the place itself where nothing
        remains. youngest_seconds: a folder is hidden, and has no owner, while it is being made."""
        for folder in cls._runs(place, ""):
            hides = folder.name.startswith(".")
            with contextlib.suppress(OSError):  # another process removes it
                age = time.time() - folder.stat().st_mtime
                if not cls._alive(folder) and not (hides and age < youngest_seconds):
                    shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.rmdir()

    @staticmethod
    def _runs(place: Path, prefix: str) -> list[Path]:
        try:
            return sorted(p for p in place.iterdir() if p.name.startswith(prefix))
        except FileNotFoundError:
            return []

    @classmethod
    def _find(cls, place: Path, prefix: str, size: int, rank: int, deadline: float) -> Path:
        pause = 0.001
        while True:
            for folder in cls._runs(place, prefix):
                if (folder / f"rank-{rank}").exists() or not cls._alive(folder):
                    continue
                theirs = (folder / "owner").read_text()
                if theirs != str(size):
                    raise ValueError(
                        f"rank {rank} is one of {size} processes, rank 0 one of {theirs}"
                    )
                return folder
            if time.monotonic() > deadline:
                raise DistNetworkError(f"rank {rank} has waited for rank 0, which has not come")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def leave(self, well: bool = True) -> None:
        """Removes the folder, on rank 0. The others see whether this process left well."""
        if self._own is not None:
            if well:
                os.write(self._own, b" left")
            os.close(self._own)
            self._own = None
        if self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None
            with contextlib.suppress(OSError):  # other runs are there
                self.folder.parent.rmdir()
