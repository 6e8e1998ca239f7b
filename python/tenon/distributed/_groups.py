"""Process groups: init_process_group, the groups that are made of it, and who is in them."""

from __future__ import annotations

import atexit
import os
import sys
import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tenon.distributed import _engine, _place
from tenon.distributed._errors import DistStoreError
from tenon.distributed._options import GlooOptions, NCCLConfig, NCCLOptions, Options
from tenon.distributed._store import FileStore, HashStore, checked_span, meeting_url
from tenon.distributed.constants import DEFAULT_TIMEOUT

LONGEST_TIMEOUT = timedelta(days=3650)


class Backend(str):
    """The name of an engine, in small letters."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())


def _only(tensors: Any) -> Any:
    """A tensor, or the only one of a list."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            raise ValueError(f"expected one tensor, got {len(tensors)}")
        return tensors[0]
    return tensors


class ProcessGroup:
    """Processes that exchange data. `ranks` are their ranks in the default group, in order."""

    def __init__(
        self,
        world: _engine.World | None,
        ranks: list[int],
        backend: str,
        seconds: float,
        name: str,
        there: _engine.World | None = None,
        options: Any = None,
    ) -> None:
        """there: of tensors on devices, where that is another engine's."""
        self._world, self._ranks, self._backend = world, ranks, backend
        self._there = there or (world if world is not None and world.device else None)
        self._seconds, self.group_name = seconds, name
        self._destroyed = False
        self.group_desc = name
        self.bound_device_id: Any = None  # a group serves tensors of any device
        self.options = options

    def rank(self) -> int:
        """The number of this process in the group."""
        return 0 if self._world is None else self._world.rank

    def size(self) -> int:
        """How many processes there are."""
        return len(self._ranks)

    def name(self) -> str:
        """The engine."""
        return self._backend

    # The operations of `distributed` by the names of its class in PyTorch.

    def allreduce(self, tensors: Any, op: Any = None) -> Any:
        """all_reduce of a tensor, or of the only one of a list; returns a work."""
        from tenon import distributed

        return distributed.all_reduce(
            _only(tensors), distributed.ReduceOp.SUM if op is None else op, self, async_op=True
        )

    def broadcast(self, tensors: Any, root: int = 0) -> Any:
        """broadcast from a rank of the group; returns a work."""
        from tenon import distributed

        return distributed.broadcast(_only(tensors), None, self, async_op=True, group_src=root)

    def allgather(self, outputs: Any, inputs: Any) -> Any:
        """all_gather of the only tensor of a list into the only list; returns a work."""
        from tenon import distributed

        into = _only(outputs) if isinstance(outputs[0], (list, tuple)) else outputs
        return distributed.all_gather(into, _only(inputs), self, async_op=True)

    def reduce_scatter(self, outputs: Any, inputs: Any, op: Any = None) -> Any:
        """reduce_scatter of the only list of tensors; returns a work."""
        from tenon import distributed

        given = _only(inputs) if isinstance(inputs[0], (list, tuple)) else inputs
        how = distributed.ReduceOp.SUM if op is None else op
        return distributed.reduce_scatter(_only(outputs), given, how, self, async_op=True)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """isend to a rank of the group; returns a work."""
        from tenon import distributed

        return distributed.isend(_only(tensors), group=self, tag=tag, group_dst=dst)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """irecv from a rank of the group; returns a work."""
        from tenon import distributed

        return distributed.irecv(_only(tensors), group=self, tag=tag, group_src=src)

    def barrier(self) -> Any:
        """barrier; returns a work."""
        from tenon import distributed

        return distributed.barrier(self, async_op=True)

    def _finish_device_work(self) -> None:
        """Waits for what this process has queued on the device that the group's engine uses, and
        for operations of the group there, which other streams need not have waited for."""
        if self._there is not None:
            from tenon._device.streams import current_stream

            current_stream(self._there.device).synchronize()
            self._there.settle()

    def _part(
        self, ranks: list[int], seconds: float, worlds: tuple[Any, Any] | None = None,
        number: int = 0,
    ) -> tuple[Any, Any]:  # fmt: skip
        """The worlds of some ranks of this group's, or of others of the same processes; None on
        those that are not in them. number: these alone call it (_engine.part)."""
        world, there = worlds or (self._world, self._there)
        part = None if world is None else world.part(ranks, seconds, number)
        apart = there is not None and there is not world
        return part, there.part(ranks, seconds, number) if apart else None

    def _leave(self) -> None:
        for world in {self._world, self._there} - {None, *_state.worlds.values()}:
            world.close()
        self._world = self._there = None
        self._destroyed = True

    def _get_backend_name(self) -> str:
        """The engine."""
        return self._backend

    def _get_backend(self, device: Any) -> ProcessGroup:
        """The group as its engine of a kind of device has it."""
        from tenon import device as device_of

        kind = device_of(device).type
        pairs = dict(p.split(":") for p in self._backend.split(",") if ":" in p)
        if not pairs:
            return self
        if kind not in pairs:
            raise RuntimeError(f"No backend type associated with device type {kind}")
        world = self._there if kind == "cuda" else self._world
        return _class_of(pairs[kind])(
            world, self._ranks, pairs[kind], self._seconds, self.group_name, None, self.options
        )

    def set_timeout(self, timeout: timedelta) -> None:
        """How long the next operations may wait for the other ranks."""
        if timeout is None:
            raise TypeError("set_timeout(): expected a timedelta, got None")
        self._seconds = _seconds(timeout)

    def abort(self) -> None:
        """Ends what runs on this rank's device for the group, which is lost then."""
        if self._there is not None:
            self._there.abort(1)

    def shutdown(self) -> None:
        """Leaves the group."""
        if not self._destroyed:
            destroy_process_group(self)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: {self.size()} ranks over {self._backend}>"


class ProcessGroupGloo(ProcessGroup):
    """A group over Gloo."""

    Options, _Options = Options, GlooOptions


class ProcessGroupNCCL(ProcessGroup):
    """A group over NCCL."""

    Options = NCCLOptions
    NCCLConfig = NCCLConfig


class ProcessGroupMPI(ProcessGroup):
    """A group over MPI."""


def _class_of(backend: str) -> type[ProcessGroup]:
    own = {"gloo": ProcessGroupGloo, "nccl": ProcessGroupNCCL, "mpi": ProcessGroupMPI}
    return own.get(backend.lower(), ProcessGroup)


def _checked_options(backend: str, options: Any) -> Any:
    """Options that are of the engine that is asked for."""
    if options is not None and backend == "nccl" and not isinstance(options, NCCLOptions):
        raise TypeError(
            "Expected pg_options argument to be of type ProcessGroupNCCL.Options, got "
            f"{type(options).__name__}"
        )
    return options


class GroupMember:
    """Names of groups."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER: Any = -100


class _State:
    """What init_process_group has made."""

    def __init__(self) -> None:
        self.meeting: _place.Meeting | None = None
        self.groups: list[ProcessGroup] = []
        self.store: Any = None  # that the processes share
        self.joined = 0  # how often this process has joined others
        self.url, self.device = "", -1
        self.worlds: dict[str, _engine.World] = {}  # of all processes, by engine
        self.own_groups: dict[tuple[int, ...], int] = {}  # made without the others, by ranks


_state = _State()


# ---- Which engine --------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether there are process groups at all."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group was called."""
    return GroupMember.WORLD is not None


def is_gloo_available() -> bool:
    """Whether the engine for Gloo was built."""
    return _engine.find("gloo") is not None


def is_mpi_available() -> bool:
    """Whether an engine for MPI was built, and no launcher but MPI's has started this process."""
    if "RANK" in os.environ and _place.mpi_launcher() is None:
        return False
    return any(_engine.find(f"mpi_{kind}") for kind in ("openmpi", "mpich"))


def is_nccl_available() -> bool:
    """Whether the engine for NCCL was built, and there is a GPU."""
    from tenon import cuda

    return _engine.find("nccl") is not None and cuda.is_available()


def is_ucc_available() -> bool:
    """There is no engine for UCC."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether the engine of a name was built."""
    return backend.lower() in ("gloo", "mpi", "nccl") and {
        "gloo": is_gloo_available, "mpi": is_mpi_available, "nccl": is_nccl_available,
    }[backend.lower()]()  # fmt: skip


def is_torchelastic_launched() -> bool:
    """Whether a launcher that restarts processes has started this one."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _names(backend: str | None) -> tuple[str, str | None]:
    """The engines that a backend's text asks for, of tensors on the CPU, and of those on GPUs where
    that is another one: "gloo", "cpu:gloo,cuda:nccl", None."""
    if not backend:
        return "mpi" if _place.mpi_launcher() and is_mpi_available() else "gloo", None
    if ":" not in backend:
        return backend.lower(), None
    pairs = {}
    for part in backend.lower().split(","):
        device, _, name = part.partition(":")
        if not device or not name or device in pairs:
            raise ValueError(f"Invalid backend: {backend!r}: expected such as 'cpu:gloo,cuda:nccl'")
        pairs[device] = name
    host = pairs.get("cpu") or next(iter(pairs.values()))
    there = pairs.get("cuda", host)
    return host, None if there == host else there


def _library(name: str) -> Any:
    """The file of an engine."""
    if name == "nccl" and not is_nccl_available():
        raise RuntimeError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
    if name not in ("gloo", "mpi", "nccl"):
        found = _engine.find(name)
        if found is None:
            raise ValueError(f"Invalid backend: '{name}': there is no engine tenon_{name}.so")
        return found
    wanted = [name]
    if name == "mpi":
        launcher = _place.mpi_launcher()
        wanted = [f"mpi_{launcher}"] if launcher else ["mpi_openmpi", "mpi_mpich"]
    for file in wanted:
        found = _engine.find(file)
        if found is not None:
            return found
    raise RuntimeError(
        f"init_process_group: the engine '{name}' was not built; it needs "
        + ("libgloo-dev and a C++ compiler" if name == "gloo" else "libopenmpi-dev or libmpich-dev")
    )


# ---- The default group ---------------------------------------------------------------------------


def _seconds(timeout: Any) -> float:
    """A timeout in seconds; engines count nanoseconds, of which there are no more than years."""
    if timeout is None:
        return DEFAULT_TIMEOUT.total_seconds()
    return max(min(checked_span(timeout).total_seconds(), LONGEST_TIMEOUT.total_seconds()), 0.0)


def _where(init_method: str | None, rank: int, size: int, store: Any) -> tuple[int, int, str]:
    """Rank, size and meeting place, of what was said here and what the launcher says."""
    url = init_method or "env://"
    if store is not None:
        if rank < 0 or size < 1:
            raise ValueError("init_process_group: a store needs rank and world_size")
        return rank, size, meeting_url(store, rank) if size > 1 else ""
    in_url = _place.rank_and_size(url)
    rank = in_url[0] if rank < 0 and in_url[0] is not None else rank
    size = in_url[1] if size < 1 and in_url[1] is not None else size
    if url.startswith("env://"):
        told = _place.ask_launcher(rank_said=rank, size_said=size)
        if told is not None and ((rank >= 0 and rank != told[0]) or (size > 0 and size != told[1])):
            raise ValueError(
                f"init_process_group: rank {rank} of {size} was asked for, the launcher says rank "
                f"{told[0]} of {told[1]}"
            )
        if told is None and (rank < 0 or size < 1):
            missing = "RANK" if rank < 0 else "WORLD_SIZE"
            raise ValueError(
                "Error initializing torch.distributed using env:// rendezvous: environment "
                f"variable {missing} expected, but not set"
            )
        place = told or (rank, size)
        alone = place[1] == 1 or (_place.mpi_launcher() and "MASTER_ADDR" not in os.environ)
        return (*place, "" if alone else _place.environment_url())
    if rank < 0 or size < 1:
        told = _place.ask_launcher(rank_said=rank, size_said=size)
        rank, size = (
            given if given >= least else told[i] if told is not None else -1
            for i, (given, least) in enumerate([(rank, 0), (size, 1)])
        )
    if rank < 0 or size < 1:
        missing = "rank" if rank < 0 else "world_size"
        raise ValueError(f"Error initializing torch.distributed: {missing} parameter missing")
    return rank, size, url


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Joins the processes of a run; all of them call it.

    backend: "gloo", "mpi", "nccl", the name of another engine, or None: what fits the launcher.
    init_method: env:// (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, or an MPI's launcher),
    tcp://host:port or file:///path. TENON_CHECK_COLLECTIVES=k compares every k-th operation of the
    ranks before it runs, 0 none; unless it says so, every one is.
    """
    del group_name
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    if init_method is not None and store is not None:
        raise ValueError("Cannot specify both init_method and store.")
    name, device_name = _names(backend)
    number, size, url = _where(init_method, rank, world_size, store)
    if not 0 <= number < size:
        raise ValueError(f"init_process_group: rank {number} is no rank of {size} processes")
    _checked_options(name, pg_options)
    seconds = _seconds(timeout)
    _state.url, _state.device = url, _device_index(device_id)
    worlds: list[_engine.World | None] = [None, None]
    if size > 1:
        try:
            for i, engine in enumerate([name, device_name] if device_name else [name]):
                worlds[i] = _world_of(engine, number, size, seconds)
        except BaseException:
            _close_worlds()
            _leave_meeting()
            raise
    elif "nccl" in (name, device_name) and not is_nccl_available():
        _library("nccl")
    _state.store = store
    shown = name if device_name is None else f"cpu:{name},cuda:{device_name}"
    GroupMember.WORLD = _class_of(shown)(
        worlds[0], list(range(size)), shown, seconds, "default_pg", worlds[1], pg_options
    )
    GroupMember.WORLD.bound_device_id = device_id
    _state.groups.append(GroupMember.WORLD)


def _device_index(device_id: Any) -> int:
    """The GPU of this process, as it was said here or by cuda.set_device; -1: nobody said so."""
    from tenon import cuda, device

    if device_id is None:
        return cuda.current_device() if cuda._base.was_chosen else -1
    given = device("cuda", device_id) if isinstance(device_id, int) else device(device_id)
    if given.type != "cuda":
        return -1
    if given.index is None:
        raise ValueError("init_process_group: device_id must have an index, such as 'cuda:0'")
    return int(given.index)


def choose_device() -> None:
    """Lets "cuda" stand for the GPU of this process's LOCAL_RANK, unless the program has chosen one
    or uses one already."""
    from tenon import cuda

    local = get_node_local_rank(-1)
    idle = not cuda._base.was_chosen and not cuda.is_initialized()
    if local >= 0 and idle and cuda.is_available():
        cuda.set_device(local % cuda.device_count())


def _world_of(engine: str, number: int, size: int, seconds: float) -> _engine.World:
    """All processes through an engine, which they join when the first group asks for it."""
    if engine in _state.worlds:
        return _state.worlds[engine]
    path, folder = _library(engine), ""
    if engine != "mpi":
        if _state.meeting is None:
            _state.joined += 1
            place = _place.meeting_place(_state.url)
            _state.meeting = _place.Meeting(place, number, size, _state.joined, seconds)
            _engine.who_is_gone = _state.meeting.gone
            _engine.why_none_sends = _state.meeting.why_none_sends
        folder = str(_state.meeting.folder)
    interface = os.environ.get("TENON_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    checks = "TENON_CHECK_COLLECTIVES"
    check = _place._number(checks, os.environ.get(checks, "1"))
    try:
        world = _engine.World.open(
            path, number, size, folder, interface, seconds, check, _state.device
        )
    except OSError as err:
        missing = "" if _state.meeting is None else _state.meeting.missing(size)
        if not missing:
            raise _engine.told_who_is_gone(err) from None
        raise DistStoreError(
            f"init_process_group: rank {number} has waited {seconds:g} s; {missing}"
        ) from None
    _state.worlds[engine] = world
    return world


def _close_worlds() -> None:
    for world in _state.worlds.values():
        world.close()
    _state.worlds.clear()


def default_store() -> Any:
    """A store of all processes: that of init_process_group, or one in their meeting place."""
    if _state.store is None:
        if _state.meeting is not None:
            _state.store = FileStore(_state.meeting.folder / "store")
        elif _group(None).size() == 1:
            _state.store = HashStore()
        else:
            raise NotImplementedError(
                "_get_default_store: processes that meet through MPI share no store; pass "
                "init_process_group one"
            )
    return _state.store


def _leave_meeting(well: bool = True) -> None:
    _state.store = None
    if _state.meeting is not None:
        _engine.who_is_gone = _engine.why_none_sends = None
        _state.meeting.leave(well)
        _state.meeting = None


@atexit.register
def _leave_at_exit() -> None:
    well = not hasattr(sys, "last_value")  # the exception that ends the process
    _leave_meeting(well)
    if not well and "mpi" in _state.worlds:
        sys.stderr.flush()
        _state.worlds["mpi"].abort(1)  # the others would wait for this rank, and MPI's end for them


def destroy_process_group(group: Any = None) -> None:
    """Leaves a group, or all of them; what this process is not in is left already."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    default = _group(None)
    leaving = [default] if group is None else [_group(group)]
    if leaving[0] is default:
        leaving = _state.groups[::-1]
        GroupMember.WORLD = None
    for g in leaving:
        g._leave()
        _state.groups.remove(g)
    if not _state.groups:
        _close_worlds()
        _leave_meeting()


def _group(group: Any) -> ProcessGroup:
    """The group that an argument means; one that this process is not in is an error."""
    if group is None:
        if GroupMember.WORLD is None:
            raise ValueError(
                "Default process group has not been initialized, "
                "please make sure to call init_process_group."
            )
        return GroupMember.WORLD
    if group == GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is not a member of the group")
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"expected a process group, got {type(group).__name__}")
    if group._destroyed:
        raise ValueError(
            f"Invalid process group specified or has been destroyed: {group.group_name!r}"
        )
    return group


def group_of_ranks(ranks: list[int]) -> ProcessGroup | None:
    """A group of just these ranks of the default group, where this process has one."""
    return next((g for g in _state.groups if g._ranks == ranks), None)


# ---- Other groups --------------------------------------------------------------------------------


def new_group(
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some ranks; all processes of the default group call it, in the same order, or,
    with use_local_synchronization, those of the new group.

    Returns GroupMember.NON_GROUP_MEMBER to those that are not in it.
    """
    default = _group(None)
    given = range(default.size()) if ranks is None else _whole_numbers("new_group", ranks)
    chosen = sorted(given)
    if len(set(chosen)) != len(chosen) or any(not 0 <= r < default.size() for r in chosen):
        raise ValueError(
            f"new_group: {ranks} are not different ranks of the {default.size()} processes"
        )
    engines = [e for e in _names(backend) if e is not None] if backend is not None else []
    for engine in engines:
        _library(engine)
        _checked_options(engine, pg_options)
    seconds = default._seconds if timeout is None else _seconds(timeout)
    name = group_desc or f"group_{len(_state.groups)}"
    worlds, number = None, 0
    if use_local_synchronization:
        if default.rank() not in chosen:
            return GroupMember.NON_GROUP_MEMBER
        number = _number_of_their_own(chosen)
        name = group_desc or f"group_{number}"
    if engines and default._world is not None and _state.meeting is not None:
        every = [_world_of(e, default.rank(), default.size(), seconds) for e in engines]
        worlds = every[0], every[-1] if every[-1].device else None
    world, there = default._part(chosen, seconds, worlds, number)
    if default._world is not None and world is None:
        return GroupMember.NON_GROUP_MEMBER
    shown = backend or default._backend
    group = _class_of(shown)(world, chosen, shown, seconds, name, there, pg_options)
    group.bound_device_id = default.bound_device_id if device_id is None else device_id
    _state.groups.append(group)
    return group


def _number_of_their_own(ranks: list[int]) -> int:
    """What the members of a group that the others do not hear of agree on: it follows from their
    ranks and from how many such groups they had."""
    count = _state.own_groups[tuple(ranks)] = _state.own_groups.get(tuple(ranks), 0) + 1
    return zlib.crc32(repr((ranks, count)).encode()) | _engine.OWN_ID


def split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> Any:
    """The group of this process among those that its ranks of a group are divided into; all
    processes of that group call it. None: this process is in none of them."""
    parent = _group(parent_pg)
    if not split_ranks:
        raise ValueError("split_group: split_ranks cannot be None or empty")
    lists = [sorted(_whole_numbers("split_group", ranks)) for ranks in split_ranks]
    every = [r for ranks in lists for r in ranks]
    if len(set(every)) != len(every) or any(not 0 <= r < parent.size() for r in every):
        raise ValueError(
            f"split_group: {split_ranks} are not different ranks of the group's {parent.size()}"
        )
    seconds = parent._seconds if timeout is None else _seconds(timeout)
    own = GroupMember.NON_GROUP_MEMBER
    for ranks in lists:
        world, there = parent._part(ranks, seconds)
        if parent.rank() in ranks:
            name = group_desc or f"group_{len(_state.groups)}"
            chosen = [parent._ranks[r] for r in ranks]
            own = _class_of(parent._backend)(
                world, chosen, parent._backend, seconds, name, there, pg_options
            )
            own.bound_device_id = parent.bound_device_id
            _state.groups.append(own)
    return own


def new_subgroups(group_size: int | None = None, group: Any = None, **options: Any) -> Any:
    """(the group of this process, all groups): the ranks in runs of group_size."""
    size = _group(group).size()
    part = group_size or size
    _whole_numbers("new_subgroups", [part])
    if part < 0 or size % part:
        raise ValueError(f"The world size {size} must be divisible by 'group_size={part}'")
    return new_subgroups_by_enumeration(
        [list(range(i, i + part)) for i in range(0, size, part)], **options
    )


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Any, **options: Any) -> Any:
    """(the group of this process, all groups), one for each list of ranks."""
    options.pop("group_desc", None)
    groups = [list(ranks) for ranks in ranks_per_subgroup_list]
    first: dict[int, list[int]] = {}
    for ranks in groups:
        for rank in ranks:
            if first.setdefault(rank, ranks) is not ranks:
                raise ValueError(
                    f"Rank {rank} has appeared in both subgroup {first[rank]} and {ranks}"
                )
    made = [new_group(ranks, **options) for ranks in groups]
    mine = [g for g in made if g != GroupMember.NON_GROUP_MEMBER]
    return (mine[0] if mine else None), made


def _whole_numbers(name: str, numbers: Any) -> list[int]:
    """The numbers; anything else is refused."""
    listed = isinstance(numbers, Iterable) and not isinstance(numbers, (str, bytes))
    found = list(numbers) if listed else [None]
    if not all(hasattr(n, "__index__") for n in found):
        raise TypeError(f"{name}: expected whole numbers, got {numbers!r}")
    return found


def get_rank(group: Any = None) -> int:
    """The number of this process in the group; -1 where it is not in it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else _group(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes the group has; -1 where this one is not in it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else _group(group).size()


def get_backend(group: Any = None) -> Backend:
    """The engine of the group."""
    return Backend(_group(group)._backend)


def get_backend_config(group: Any = None) -> str:
    """The engine of the group by kind of device: "cpu:gloo,cuda:gloo"."""
    name = _group(group)._backend
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks of the default group that are in the group, in its order."""
    return list(_group(group)._ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank of the default group that has a rank in the group."""
    ranks = _group(group)._ranks
    _whole_numbers("get_global_rank", [group_rank])
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in the group of a rank of the default group."""
    ranks = _group(group)._ranks
    _whole_numbers("get_group_rank", [global_rank])
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process on its machine, as the launcher says."""
    for _, _, local, _ in _place._LAUNCHERS.values():
        if local in os.environ:
            return _place._number(local, os.environ[local])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank")


def get_default_backend_for_device(device: Any) -> str:
    """The engine that programs use for a kind of device."""
    kind = str(getattr(device, "type", device)).split(":")[0]
    return Backend.default_device_backend_map.get(kind, "gloo")


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_state.groups)
