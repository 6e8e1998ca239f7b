"""Copies of what is to be saved, so that training may go on while they are written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import tenon
from tenon import Tensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]

State = dict[str, Any]


def copied(value: Any) -> Any:
    """The same in the memory of the CPU, with tensors, also those in lists and tables, that
    nobody writes to."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if type(value) is list else value


def _written_over(kept: Any, value: Any) -> Any:
    """The copy `kept` with the numbers of `value`, which has its structure."""
    if isinstance(value, Tensor):
        kept.copy_(value.detach())
        return kept
    if isinstance(value, dict):
        if kept.keys() != value.keys():
            raise RuntimeError(
                f"BlockingAsyncStager: the kept copy has the names {sorted(map(str, kept))}, not "
                f"{sorted(map(str, value))}"
            )
        for k, v in value.items():
            kept[k] = _written_over(kept[k], v)
        return kept
    if type(value) is list and len(kept) == len(value):
        return [_written_over(k, v) for k, v in zip(kept, value, strict=True)]
    return value


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
