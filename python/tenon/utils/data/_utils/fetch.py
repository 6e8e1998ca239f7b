"""What makes batches of a dataset: for our loader, and others that are built like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _BaseDatasetFetcher:
    """A dataset, and how its samples become batches."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool
    ) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Batches of a stream: of an index, the length alone matters."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dataset_iter = iter(self.dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The next batch; StopIteration: there is none."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(samples)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Batches by their indices."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of some indices, or one sample."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        many = getattr(self.dataset, "__getitems__", None)
        if callable(many):
            return self.collate_fn(many(possibly_batched_index))
        samples = []
        for i in possibly_batched_index:
            try:
                samples.append(self.dataset[i])
            except Exception as err:
                err.add_note(f"It was raised by sample {i!r}.")
                raise
        return self.collate_fn(samples)
