"""Sequences of different lengths: padded into one tensor, or packed by time step."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import tenon
from tenon import Tensor

_Packed = namedtuple("PackedSequence", "data batch_sizes sorted_indices unsorted_indices")


class PackedSequence(_Packed):
    """Rows grouped by time step: batch_sizes[t] rows belong to step t, the longest first."""

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        """The same sequences of other rows, with the order of the rows beside them."""
        if data is self.data:
            return self
        order = (
            None if t is None else t.to(data.device)
            for t in (self.sorted_indices, self.unsorted_indices)
        )  # fmt: skip
        return type(self)(data, self.batch_sizes, *order)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same rows on another device or in another dtype."""
        return self._with(self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """The same rows in the host's memory."""
        return self._with(self.data.cpu())

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same rows on a GPU."""
        return self._with(self.data.cuda(*args, **kwargs))

    def pin_memory(self) -> PackedSequence:
        """The same rows in page-locked memory."""
        return self._with(self.data.pin_memory())

    def double(self) -> PackedSequence:
        """The same rows as float64."""
        return self.to(tenon.float64)

    def float(self) -> PackedSequence:
        """The same rows as float32."""
        return self.to(tenon.float32)

    def half(self) -> PackedSequence:
        """The same rows as float16."""
        return self.to(tenon.float16)

    def long(self) -> PackedSequence:
        """The same rows as int64."""
        return self.to(tenon.int64)

    def int(self) -> PackedSequence:
        """The same rows as int32."""
        return self.to(tenon.int32)

    def short(self) -> PackedSequence:
        """The same rows as int16."""
        return self.to(tenon.int16)

    def char(self) -> PackedSequence:
        """The same rows as int8."""
        return self.to(tenon.int8)

    def byte(self) -> PackedSequence:
        """The same rows as uint8."""
        return self.to(tenon.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the rows are on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the rows are in page-locked memory."""
        return self.data.is_pinned()


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one."""
    if permutation is None:
        return None
    places = tenon.arange(permutation.numel(), device=permutation.device)
    return tenon.empty_like(permutation).scatter_(0, permutation, places)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks sequences (L_i, *) into (max L, B, *), or (B, max L, *) with batch_first."""
    if not isinstance(batch_first, bool):
        raise TypeError(
            "pad_sequence(): argument 'batch_first' (position 2) must be bool, "
            f"not {type(batch_first).__name__}"
        )
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequences = list(sequences)
    for i, sequence in enumerate(sequences):
        if not isinstance(sequence, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(sequence).__name__}"
            )
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side should be 'left' or 'right', but got {padding_side}")
    longest = max(s.size(0) for s in sequences)
    trailing = sequences[0].shape[1:]
    padding = sequences[0].new_full((), padding_value)
    parts = []
    for sequence in sequences:
        pair = [
            sequence.to(padding.dtype).expand(-1, *trailing),
            padding.expand(longest - sequence.size(0), *trailing),
        ]
        parts += pair if padding_side == "right" else reversed(pair)
    result = tenon.cat(parts).reshape(len(sequences), longest, *trailing)
    return result if batch_first else result.transpose(0, 1).contiguous()


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences that pad_sequence stacked."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(rows, lengths.tolist())]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch; lengths must fall unless enforce_sorted is False."""
    lengths = tenon.as_tensor(lengths, dtype=tenon.int64, device="cpu")
    order = None
    if not enforce_sorted:
        lengths, order = tenon.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    sizes = lengths.tolist()
    rows = input.transpose(0, 1) if batch_first else input
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != rows.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={rows.size(1)})"
        )
    if any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence "
            "to sidestep this requirement if you do not need ONNX exportability."
        )
    if not sizes:
        raise RuntimeError("Cannot pack empty tensors.")
    if sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if sizes[0] > rows.size(0):
        raise RuntimeError(
            f"pack_padded_sequence(): argument 'lengths' has {sizes[0]}, but the sequences have "
            f"{rows.size(0)} steps"
        )
    batch_sizes = [sum(1 for n in sizes if n > t) for t in range(sizes[0])]
    data = tenon.cat([rows[t, :n] for t, n in enumerate(batch_sizes)])
    counts = tenon.tensor(batch_sizes, dtype=tenon.int64, device="cpu")
    return PackedSequence(data, counts, order, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch that was packed, and its lengths."""
    batch_sizes = sequence.batch_sizes.tolist()
    steps = len(batch_sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    shape = (steps, batch_sizes[0], *sequence.data.shape[1:])
    padded = sequence.data.new_full(shape, padding_value)
    for t, rows in enumerate(sequence.data.split(batch_sizes)):
        padded[t, : batch_sizes[t]] = rows
    lengths = tenon.tensor(
        [sum(1 for n in batch_sizes if n > b) for b in range(batch_sizes[0])],
        dtype=tenon.int64,
        device="cpu",
    )
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return padded, lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences."""
    lengths = [s.size(0) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of sequences that was packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
