"""DataLoader: batches of a dataset, in this process or from worker processes."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import tenon
from tenon._tape import overridable
from tenon.utils.data._utils.collate import default_collate, default_convert
from tenon.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from tenon.utils.data._utils.pin_memory import pin_memory
from tenon.utils.data._utils.worker import Workers, get_worker_info
from tenon.utils.data.datapipes.datapipe import (
    IterDataPipe,
    MapDataPipe,
    _IterDataPipeSerializationWrapper,
    _MapDataPipeSerializationWrapper,
)
from tenon.utils.data.dataset import Dataset, IterableDataset, Subset, T_co, TensorDataset
from tenon.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T = TypeVar("_T")
_worker_init_fn_t = Callable[[int], None]
_collate_fn_t = Callable[[list[_T]], Any]


class _DatasetKind:
    """What a dataset is asked by: an index, or for what comes next."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> Any:
        """What makes batches of a dataset."""
        made = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return made(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of a stream: there is always a next sample to ask for."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _columns(dataset: Any) -> tuple[tuple[Any, ...], Any] | None:
    """The tensors of a TensorDataset (or a Subset of one), whose batches are one gather each."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, None
    if type(dataset) is Subset and type(dataset.dataset) is TensorDataset:
        return dataset.dataset.tensors, dataset.indices
    return None


def _gather(tensors: tuple[Any, ...], chosen: Any, indices: list[int]) -> list[Any]:
    rows = tenon.tensor(indices if chosen is None else [chosen[i] for i in indices], device="cpu")
    return [t.index_select(0, rows) for t in tensors]


def _whole_batches(loader: DataLoader) -> Iterator[list[Any]] | None:
    """Batches of a TensorDataset in its own or in random order, without a list of indices.

    None where something about the loader is not the plain case.
    """
    batches = loader.batch_sampler
    if type(loader.dataset) is not TensorDataset or loader.collate_fn is not default_collate:
        return None
    if type(batches) is not BatchSampler:
        return None
    order = batches.sampler
    plain = type(order) is SequentialSampler or (
        type(order) is RandomSampler and not order.replacement and order._num_samples is None
    )
    if not plain or order.data_source is not loader.dataset:
        return None

    def run() -> Iterator[list[Any]]:
        tensors, n, size = loader.dataset.tensors, len(loader.dataset), batches.batch_size
        rows = None
        if type(order) is RandomSampler:
            # An order more is drawn than used, as the sampler does when it is iterated.
            generator = order._generator()
            rows = tenon.randperm(n, generator=generator)
        for start in range(0, n, size):
            end = min(start + size, n)
            if end - start < size and batches.drop_last:
                break
            if rows is None:
                yield [t[start:end].clone() for t in tensors]
            else:
                chosen = rows[start:end]
                yield [t.index_select(0, chosen) for t in tensors]
        if rows is not None and order.generator is not None:
            tenon.randperm(n, generator=generator)

    return run()


def _get_distributed_settings() -> tuple[int, int]:
    """How many processes there are, and which this is."""
    if tenon.distributed.is_available() and tenon.distributed.is_initialized():
        return tenon.distributed.get_world_size(), tenon.distributed.get_rank()
    return 1, 0


def _sharding_worker_init_fn(
    worker_init_fn: Callable[[int], None] | None, world_size: int, rank_id: int, worker_id: int
) -> None:
    """In a worker: its share of the elements, those of the processes shared among workers."""
    from tenon.utils.data import graph_settings

    info = get_worker_info()
    if info is None:
        raise AssertionError("Worker info is None in sharding worker init function")
    own = worker_id * world_size + rank_id
    graph_settings.apply_sharding(info.dataset, info.num_workers * world_size, own)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


def _share_dist_seed(generator: Any, pg: Any) -> int:
    """A seed that is the same in all processes."""
    seed = tenon.empty((), dtype=tenon.int64).random_(generator=generator)
    if pg is not None:
        tenon.distributed.broadcast(seed, src=0, group=pg)
    return int(seed.item())


def _seed_pipes(dataset: Any, seed: int | None) -> None:
    """Gives the pipes of a loader seeds that follow from one; None: it has no pipes."""
    if seed is not None:
        from tenon.utils.data import graph_settings

        generator = tenon.Generator()
        generator.manual_seed(seed)
        graph_settings.apply_random_seed(dataset, generator)


class _BaseDataLoaderIter:
    """One pass over a loader. Loaders of other packages, which derive theirs from it, find here
    what PyTorch's has."""

    def __init__(self, loader: Any, seeded: bool = False) -> None:
        self.loader = loader
        self._dataset = loader.dataset
        self._pg = None
        self._shared_seed = None
        self._share_seed()
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._world_size, self._rank = _get_distributed_settings()
        self._pin_memory = loader.pin_memory
        self._pin_memory_device = loader.pin_memory_device or None
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._sampler_iter = iter(self._index_sampler)
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0
        if not seeded:  # workers that go on keep the seed they started with
            seed = tenon.empty((), dtype=tenon.int64).random_(generator=loader.generator)
            self._base_seed = int(seed.item())

    def _share_seed(self) -> None:
        """Seeds the pipes by what all processes, and all workers, go by."""
        if not isinstance(self._dataset, IterDataPipe):
            return
        dist = tenon.distributed
        if self._pg is None and dist.is_available() and dist.is_initialized():
            self._pg = dist.new_group(backend="gloo")
        self._shared_seed = _share_dist_seed(self.loader.generator, self._pg)
        _seed_pipes(self._dataset, self._shared_seed)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Starts another pass."""
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._share_seed()

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        told = self._IterableDataset_len_called
        if told is not None and self._num_yielded > told:
            self._warn_of_length(told)
        return data

    def _warn_of_length(self, told: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {told} (when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly "
                "configuring the IterableDataset replica at each worker: its __iter__ has to ask "
                "get_worker_info() which part is its own."
            )
        warnings.warn(text, stacklevel=overridable.users_level())

    def _pinned(self, data: Any) -> Any:
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """A pass in this process."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("DataLoader: argument 'timeout' is for loaders with workers")
        if isinstance(self._dataset, IterDataPipe | MapDataPipe):
            from tenon.utils.data import graph_settings

            graph_settings.apply_sharding(self._dataset, self._world_size, self._rank)
        loader = _known(loader)
        self.whole = _whole_batches(loader)
        self.fetch = loader._fetcher() if self.whole is None else None

    def _next_data(self) -> Any:
        if self.whole is not None:
            return self._pinned(next(self.whole))
        return self._pinned(self.fetch(self._next_index()))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """A pass through workers."""

    def __init__(self, loader: DataLoader, workers: Workers | None = None) -> None:
        super().__init__(loader, seeded=workers is not None)
        self.workers = workers
        fresh = workers is None
        if fresh:
            self.workers = Workers(_known(loader), self._base_seed, self._shared_seed)
            self._share_seed()  # a pass draws its own
        self.workers.begin(fresh, self._shared_seed)

    def _next_data(self) -> Any:
        try:
            return self._pinned(self.workers.next(self._next_index))
        except StopIteration:
            if not self.loader.persistent_workers:
                self.workers.close()
            raise

    def _shutdown_workers(self) -> None:
        self.workers.close()


_FIXED = {
    "batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers",
}  # fmt: skip


class DataLoader(Generic[T_co]):
    """Batches of a dataset: samples in an order, collated, from this process or from workers."""

    _IterableDataset_len_called: int | None = None  # what len() said of a stream

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self._check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if isinstance(dataset, IterDataPipe):
            dataset = _IterDataPipeSerializationWrapper(dataset)
        elif isinstance(dataset, MapDataPipe):
            dataset = _MapDataPipeSerializationWrapper(dataset)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.multiprocessing_context = multiprocessing_context
        self._iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._iterable else _DatasetKind.Map
        if self._iterable:
            if isinstance(dataset, IterDataPipe):
                from tenon.utils.data import graph_settings

                # Of those that are there: one that this adds is not kept, in PyTorch neither.
                graph_settings.apply_shuffle_settings(dataset, shuffle=shuffle)
                shuffle = None
            self._check_stream(shuffle, sampler, batch_sampler)
        self._check_batches(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        if sampler is None:
            if self._iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._workers: Workers | None = None
        self._processes = (1, 0)  # how many there are, and which is the parent of the workers
        self._is_set_up = True
        self.check_worker_number_rationality()

    @staticmethod
    def _check_batches(
        batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any,
        drop_last: bool,
    ) -> None:  # fmt: skip
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive "
                    "with batch_size, shuffle, sampler, and drop_last"
                )
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching "
                "and is mutually exclusive with drop_last"
            )

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started, None: as `multiprocessing` does. A start method may be given."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading "
                f"(num_workers > 0), but got num_workers={self.num_workers}"
            )
        if isinstance(context, str):
            known = multiprocessing.get_all_start_methods()
            if context not in known:
                raise ValueError(
                    f"multiprocessing_context option should specify a valid start method in "
                    f"{known!r}, but got multiprocessing_context={context!r}"
                )
            context = multiprocessing.get_context(context)
        if context is not None and not isinstance(context, multiprocessing.context.BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string "
                f"specifying the start method, but got multiprocessing_context={context}"
            )
        self._context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_is_set_up" in self.__dict__:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @staticmethod
    def _check_workers(
        num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; "
                "use num_workers=0 to disable multiprocessing."
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing."
                "let num_workers > 0 to enable multiprocessing, otherwise set "
                "prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")

    @staticmethod
    def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
        given = {"sampler": sampler, "batch_sampler": batch_sampler}
        if shuffle not in (False, None):
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified "
                f"shuffle option, but got shuffle={shuffle}"
            )
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified "
                    f"{name} option, but got {name}={value}"
                )

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _begin_pass(self, seed: int | None) -> None:
        _seed_pipes(self.dataset, seed)

    def _begin_in_worker(self, worker: int, seed: int | None) -> None:
        self._begin_pass(seed)
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            _sharding_worker_init_fn(None, *self._processes, worker)

    def _fetcher(self) -> Callable[[Any], Any]:
        plain = self._auto_collation and self.collate_fn is default_collate
        columns = _columns(self.dataset) if plain and not self._iterable else None
        if columns is not None:
            return partial(_gather, *columns)
        fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self.dataset, self._auto_collation, self.collate_fn, self.drop_last
        )
        return fetcher.fetch

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is not forked gets a loader without its parent's processes.
        return {**self.__dict__, "_workers": None}

    def __iter__(self) -> Iterator[Any]:
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self._processes = _get_distributed_settings()
        if not self.persistent_workers:
            return _MultiProcessingDataLoaderIter(self)
        alive = self._workers
        if alive is not None and alive.torn:
            alive.close()
        if alive is not None and alive.closed:
            alive = None
        iterator = _MultiProcessingDataLoaderIter(self, alive)
        self._workers = iterator.workers
        return iterator

    def __len__(self) -> int:
        if self._dataset_kind != _DatasetKind.Iterable:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than processors that this process may run on."""
        may = getattr(os, "sched_getaffinity", None)
        cpus = len(may(0)) if may else multiprocessing.cpu_count()
        if self.num_workers > cpus:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. "
                f"Our suggested max number of worker in current system is {cpus}. Please be aware "
                "that excessive worker creation might get DataLoader running slow or even freeze.",
                stacklevel=overridable.users_level(),
            )


class _Other:
    """What is no DataLoader but has the attributes that passes over one look at."""

    batch_sampler = None
    _begin_pass = DataLoader._begin_pass
    _begin_in_worker = DataLoader._begin_in_worker
    _fetcher = DataLoader._fetcher

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._iterable = loader._dataset_kind == _DatasetKind.Iterable
        self._processes = _get_distributed_settings()

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)


def _known(loader: Any) -> Any:
    return loader if isinstance(loader, DataLoader) else _Other(loader)
