"""Operators of ONNX that hold graphs, and those of sequences and optional values."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.onnx._load.registry import Context, Subgraph, ints, number, op


@op("If")
def if_(ctx: Context, condition: Any, then_branch: Subgraph, else_branch: Subgraph) -> Any:
    return (then_branch if number(condition) else else_branch).run(ctx.values)


@op("Loop")
def loop(ctx: Context, most: Any, condition: Any, *carried: Any, body: Subgraph) -> Any:
    around = ctx.values
    count, going, state = number(most), bool(number(condition, True)), list(carried)
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    i = 0
    while going and (count is None or i < count):
        condition = tn.tensor(going)
        found = body.run(around, [tn.tensor(i, dtype=tn.int64), condition, *state])
        going, state = bool(number(found[0])), list(found[1 : 1 + len(state)])
        for rows, row in zip(scanned, found[1 + len(state) :], strict=True):
            rows.append(row)
        i += 1
    return (*state, *(tn.stack(rows) if rows else tn.zeros(0) for rows in scanned))


@op("Scan")
def scan(ctx: Context, *inputs: Any, body: Subgraph, num_scan_inputs: int,
         scan_input_axes: Any = None, scan_input_directions: Any = None,
         scan_output_axes: Any = None, scan_output_directions: Any = None,
         directions: Any = None) -> Any:  # fmt: skip
    if ctx.opset < 9:
        return _scan_by_batch(ctx, inputs, body, num_scan_inputs, directions)
    return _scan(ctx, inputs, body, num_scan_inputs, scan_input_axes,
                 scan_input_directions or directions, scan_output_axes,
                 scan_output_directions)  # fmt: skip


def _scan(ctx: Context, inputs: Any, body: Subgraph, count: int, axes: Any, directions: Any,
          out_axes: Any, out_directions: Any) -> tuple[Any, ...]:  # fmt: skip
    around = ctx.values
    state, given = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    axes, directions = axes or [0] * count, directions or [0] * count
    rows = [
        list(x.unbind(a))[::-1] if back else list(x.unbind(a))
        for x, a, back in zip(given, axes, directions, strict=True)
    ]
    made: list[list[Any]] = [[] for _ in body.outputs[len(state) :]]
    for step in zip(*rows, strict=True):
        found = body.run(around, [*state, *step])
        state = list(found[: len(state)])
        for column, value in zip(made, found[len(state) :], strict=True):
            column.append(value)
    out_axes, out_directions = out_axes or [0] * len(made), out_directions or [0] * len(made)
    return (
        *state,
        *(
            tn.stack(m[::-1] if back else m, a)
            for m, a, back in zip(made, out_axes, out_directions, strict=True)
        ),
    )


def _scan_by_batch(ctx: Context, inputs: Any, body: Subgraph, count: int, directions: Any) -> Any:
    """Opset 8: lengths of rows first, and a batch in front of everything."""
    lengths, rest = ints(inputs[0]), inputs[1:]
    found = []
    for b in range(rest[0].shape[0]):
        row = [x[b] for x in rest]
        if lengths is not None:
            cut = len(row) - count
            row = row[:cut] + [x[: lengths[b]] for x in row[cut:]]
        found.append(_scan(ctx, row, body, count, None, directions, None, None))
    return tuple(tn.stack(parts) for parts in zip(*found, strict=True))


# ---- Sequences: lists ----------------------------------------------------------------------------


@op("SequenceConstruct")
def sequence_construct(ctx: Context, *inputs: Any) -> Any:
    return ([*inputs],)


@op("SequenceEmpty")
def sequence_empty(ctx: Context, dtype: int = 1) -> Any:
    return ([],)


@op("SequenceAt")
def sequence_at(ctx: Context, items: Any, at: Any) -> Any:
    return items[int(number(at))]


def _place(items: Any, at: int) -> int:
    """The place in a sequence, counted from 0."""
    if not -len(items) <= at < len(items):
        raise IndexError(f"there is no place {at} in a sequence of {len(items)}")
    return at % len(items)


@op("SequenceInsert")
def sequence_insert(ctx: Context, items: Any, item: Any, at: Any = None) -> Any:
    place = len(items) if at is None else int(number(at))
    place = place if place == len(items) else _place(items, place)
    return ([*items[:place], item, *items[place:]],)


@op("SequenceErase")
def sequence_erase(ctx: Context, items: Any, at: Any = None) -> Any:
    place = _place(items, int(number(at, -1)))
    return ([*items[:place], *items[place + 1 :]],)


@op("SequenceLength")
def sequence_length(ctx: Context, items: Any) -> Any:
    return tn.tensor(len(items), dtype=tn.int64)


@op("SequenceMap")
def sequence_map(ctx: Context, items: Any, *more: Any, body: Subgraph) -> Any:
    around = ctx.values
    rows = []
    for i, item in enumerate(items):
        rows.append(body.run(around, [item, *(m[i] if isinstance(m, list) else m for m in more)]))
    return tuple(list(column) for column in zip(*rows, strict=True))


@op("SplitToSequence")
def split_to_sequence(ctx: Context, x: Any, sizes: Any = None, axis: int = 0,
                      keepdims: int = 1) -> Any:  # fmt: skip
    if sizes is None:
        parts = tn.split(x, 1, axis)
        return ([p if keepdims else p.squeeze(axis) for p in parts],)
    given = ints(sizes) or []
    return (list(tn.split(x, given[0] if sizes.ndim == 0 else given, axis)),)


@op("ConcatFromSequence")
def concat_from_sequence(ctx: Context, items: Any, axis: int, new_axis: int = 0) -> Any:
    return tn.stack(items, axis) if new_axis else tn.cat(items, axis)


@op("Optional")
def optional(ctx: Context, value: Any = None, type: Any = None) -> Any:
    return (value,)


@op("OptionalHasElement")
def optional_has_element(ctx: Context, value: Any = None) -> Any:
    return tn.tensor(value is not None)


@op("OptionalGetElement")
def optional_get_element(ctx: Context, value: Any) -> Any:
    return (value,)
