"""Copies of what is to be saved, so that training may go on while they are written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import tenon
from tenon import Tensor
from tenon.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]

State = dict[str, Any]


def copied(value: Any) -> Any:
    """The same in the memory of the CPU, with tensors, also those in lists and tables, that
    nobody writes to."""
    return tree_map(lambda v: v.detach().cpu().clone() if isinstance(v, Tensor) else v, value)


def _written_over(kept: State, state: State) -> State:
    """The copy `kept` with the numbers of a state of the same structure."""
    old, before = tree_flatten(kept)
    new, structure = tree_flatten(state)
    if before != structure:
        raise RuntimeError(
            f"BlockingAsyncStager: the kept copy is of another structure: {before}, not {structure}"
        )
    pairs = zip(old, new, strict=True)
    return dict(tree_unflatten([k.copy_(v.detach()) if isinstance(v, Tensor) else v
                                for k, v in pairs], structure))  # fmt: skip


@runtime_checkable
class AsyncStager(Protocol):
    """How `async_save` comes to what it writes: by `stage`, whose result later steps of training do
    not change."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether async_save calls synchronize_staging before it returns."""
        return self._synchronize_after_execute

    def stage(self, state_dict: State) -> Future[State] | State:
        """A copy of the state, or one that comes."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self) -> None:
        """Waits until the state may be changed."""

    def close(self) -> None:
        """Lets go of threads and memory."""


@dataclass
class StagingOptions:
    """use_async_staging: by a thread. The others are of devices that copy by themselves:
    use_non_blocking_copy needs one; pinned and shared memory are not used on the CPU."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Copies, in a thread if that is wanted: then stage returns a Future."""

    def __init__(self, config: StagingOptions | None = None) -> None:
        config = StagingOptions() if config is None else config
        if config.use_non_blocking_copy and not tenon.accelerator.is_available():
            raise AssertionError(
                "Non-blocking copy requires that the current accelerator is available."
            )
        self._pool = None
        if config.use_async_staging:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="staging")
        self._last: Future[State] | None = None

    def stage(self, state_dict: State, **kwargs: Any) -> Future[State] | State:
        if self._pool is None:
            return dict(copied(state_dict))
        self._last = self._pool.submit(copied, state_dict)
        return self._last

    def synchronize_staging(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)


class BlockingAsyncStager(AsyncStager):
    """Copies before it returns. cache_staged_state_dict: always into the same memory, which is why
    one save must have ended before the next begins."""

    _synchronize_after_execute = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict
        self.type_check = type_check
        self.state_dict_cache: State | None = None

    def stage(self, state_dict: State) -> State:
        if not self.cache_staged_state_dict:
            return dict(copied(state_dict))
        if self.state_dict_cache is None:
            self.state_dict_cache = dict(copied(state_dict))
            return self.state_dict_cache
        return dict(_written_over(self.state_dict_cache, state_dict))
