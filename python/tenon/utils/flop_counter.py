"""A counter of the arithmetic of products and convolutions, forward and backward.

Forward, a dispatch mode sees the operators. The products of a backward pass follow from those of
the forward pass: each is counted when the gradient of a result arrives, for the arguments that need
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import tenon
from tenon import Tensor
from tenon.ops import aten
from tenon.utils._python_dispatch import TorchDispatchMode
from tenon.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

Sizes = tuple[int, ...]


class Count(NamedTuple):
    """What a call takes: operations of an operator, and those of gradients, each with what must
    need one."""

    op: Any
    flops: int
    backward: list[tuple[Any, int, Any]]


def mm_flop(a_shape: Sizes, b_shape: Sizes, *args: Any, **kwargs: Any) -> int:
    """Multiplications and additions of a product of matrices."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


def bmm_flop(a_shape: Sizes, b_shape: Sizes, *args: Any, **kwargs: Any) -> int:
    """The same for a batch."""
    return 2 * prod(a_shape) * b_shape[2]


def conv_flop_count(x_shape: Any, w_shape: Any, out_shape: Any, transposed: bool = False) -> int:
    """The same for a convolution: every place where the kernel lies."""
    return 2 * x_shape[0] * prod(w_shape) * prod((x_shape if transposed else out_shape)[2:])


def sdpa_flop_count(query_shape: Sizes, key_shape: Sizes, value_shape: Sizes) -> int:
    """The same for the two products of attention."""
    places = prod(query_shape[:-1]) * key_shape[-2]
    return 2 * places * (query_shape[-1] + value_shape[-1])


def sdpa_backward_flop_count(
    grad_out_shape: Sizes, query_shape: Sizes, key_shape: Sizes, value_shape: Sizes
) -> int:
    """The same for its gradient, which computes the first product again."""
    places = prod(query_shape[:-1]) * key_shape[-2]
    return 2 * places * (3 * query_shape[-1] + 2 * value_shape[-1])


def _product(op: Any, flops: int, gradient: Any, a: Any, b: Any) -> Count:
    return Count(op, flops, [(gradient, flops, a), (gradient, flops, b)])


def _linear(input: Tensor, weight: Tensor, bias: Any = None) -> Count:
    flops = 2 * input.numel() * weight.shape[0]
    return _product(aten.mm if bias is None else aten.addmm, flops, aten.mm, input, weight)


def _matmul(input: Tensor, other: Tensor, **_: Any) -> Count | None:
    if min(input.dim(), other.dim()) < 2:
        return None
    op = aten.mm if min(input.dim(), other.dim()) == 2 else aten.bmm
    batch = tenon.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    flops = 2 * prod(batch) * input.shape[-2] * input.shape[-1] * other.shape[-1]
    return _product(op, flops, op, input, other)


def _added(op: Any, gradient: Any) -> Callable[..., Count | None]:
    def count(input: Any, one: Tensor, other: Tensor, **_: Any) -> Count | None:
        product = _matmul(one, other)
        assert product is not None
        return _product(op, product.flops, gradient, one, other)

    return count


def _conv(transposed: bool) -> Callable[..., Count]:
    def count(input: Tensor, weight: Tensor, *rest: Any, result: Tensor, **_: Any) -> Count:
        x, out = list(input.shape), list(result.shape)
        if len(x) == weight.dim() - 1:
            x, out = [1, *x], [1, *out]
        w = list(weight.shape)
        flops = conv_flop_count(x, w, out, transposed)
        by_input = conv_flop_count(out, w, x, not transposed)
        places = out[1] * prod(x) if transposed else x[1] * prod(out)
        by_weight = 2 * places * prod(w[2:])
        gradient = aten.convolution_backward
        return Count(
            aten.convolution, flops, [(gradient, by_input, input), (gradient, by_weight, weight)]
        )

    return count


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **_: Any) -> Count:
    q, k, v = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    backward = sdpa_backward_flop_count((), q, k, v)
    return Count(
        aten._scaled_dot_product_flash_attention, sdpa_flop_count(q, k, v),
        [(aten._scaled_dot_product_flash_attention_backward, backward, (query, key, value))],
    )  # fmt: skip


def _einsum(equation: str, operands: Any, **_: Any) -> Count | None:
    if len(operands) != 2 or "." in equation:
        return _several(equation, operands)
    inputs, _, out = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "->" not in equation:
        letters = "".join(terms)
        out = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes: dict[str, int] = {}
    for term, t in zip(terms, operands, strict=True):
        for letter, n in zip(term, t.shape, strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    shared = set(terms[0]) & set(terms[1])
    flops = 2 * prod(n for letter, n in sizes.items() if letter in shared or letter in out)
    return _product(aten.bmm, flops, aten.bmm, *operands)


def _several(equation: str, operands: Any) -> None:
    if len(operands) > 1:
        raise NotImplementedError(
            f"FlopCounterMode counts einsum of two operands with letters, not {equation!r}"
        )


def _recurrent(name: str) -> Callable[..., Count]:
    """Steps of a recurrent network: each multiplies with every matrix of its layers."""

    def count(*args: Any, **_: Any) -> Count:
        input = args[0]
        cell = name.endswith("cell")
        packed = not cell and isinstance(args[1], Tensor) and args[1].dim() == 1
        batch = input.shape[0] if packed else prod(input.shape[:-1])
        params = args[2:] if cell else [a for a in args if isinstance(a, tuple | list)][-1]
        weights = [p for p in params if isinstance(p, Tensor) and p.dim() == 2]
        flops = [2 * batch * w.numel() for w in weights]
        by_weight = [(aten.mm, n, w) for n, w in zip(flops, weights, strict=True)]
        by_input = [(aten.mm, flops[0], input)]
        by_state = [(aten.mm, n, weights) for n in flops[1:]]
        return Count(aten.addmm, sum(flops), by_weight + by_input + by_state)

    return count


_COUNTS: dict[str, Callable[..., Count | None]] = {
    "linear": _linear, "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "einsum": _einsum,
    "addmm": _added(aten.addmm, aten.mm), "baddbmm": _added(aten.baddbmm, aten.bmm),
    "scaled_dot_product_attention": _attention,
    **{f"conv{n}d": _conv(False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv(True) for n in (1, 2, 3)},
    **{name: _recurrent(name) for name in (
        "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
        "rnn_relu_cell",
    )},
}  # fmt: skip
flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(
    targets: Any, get_raw: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: the function says what calls of these operators take. It gets their arguments
    and `out_shape`, sizes in place of tensors; with get_raw the tensors, and `out_val`."""

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counted = formula if get_raw else _of_sizes(formula)
        for target in targets if isinstance(targets, list | tuple) else [targets]:
            flop_registry[target] = counted
        return formula

    return register


def _sizes_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, list | tuple):
        return type(value)(_sizes_of(v) for v in value)
    return value


def _of_sizes(formula: Callable[..., int]) -> Callable[..., int]:
    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        named = {key: _sizes_of(value) for key, value in kwargs.items()}
        return formula(*_sizes_of(args), out_shape=_sizes_of(out_val), **named)

    return counted


class _Mode(TorchDispatchMode):
    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.counter._count(func.overloadpacket, result, args, kwargs)
        return result


def _needs(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.requires_grad
    return isinstance(value, tuple | list) and any(map(_needs, value))


class FlopCounterMode:
    """Counts the operations of products, convolutions and attention while it is entered, by module
    and operator. Attention is counted on the CPU too, which PyTorch does not do; recurrent layers
    count as products with their matrices."""

    def __init__(
        self,
        mods: Any = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        del mods
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.flop_registry = dict(flop_registry)
        for target, formula in (custom_mapping or {}).items():
            raw = getattr(formula, "_get_raw", False)
            self.flop_registry[target] = formula if raw else _of_sizes(formula)
        self.mod_tracker = ModuleTracker()
        self.mode: _Mode | None = None

    def get_total_flops(self) -> int:
        """The operations that were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The same by module and operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def _count(self, packet: Any, result: Any, args: Any, kwargs: Any) -> None:
        parents = set(self.mod_tracker.parents)
        if packet in self.flop_registry:
            self._add(parents, packet, self.flop_registry[packet](*args, **kwargs, out_val=result))
            return
        counter = _COUNTS.get(packet.__name__)
        if counter is None:
            return
        if packet.__name__.startswith("conv"):
            kwargs = {**kwargs, "result": result}
        found = counter(*args, **kwargs)
        if found is None:
            return
        self._add(parents, found.op, found.flops)
        later = [(op, flops) for op, flops, wanted in found.backward if _needs(wanted)]
        first = result[0] if isinstance(result, tuple | list) else result
        if not later or not isinstance(first, Tensor) or not first.requires_grad:
            return

        def arrived(grad: Tensor) -> None:
            if self.mode is not None:
                for op, flops in later:
                    self._add(parents, op, flops)

        first.register_hook(arrived)

    def _add(self, parents: set[str], op: Any, flops: int) -> None:
        for name in parents:
            self.flop_counts[name][op] += flops

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table; depth: of modules."""
        most = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name in sorted(self.flop_counts, key=lambda n: (n != "Global", n)):
            level = 0 if name == "Global" else name.count(".") + 1
            if most is not None and level > most:
                continue
            counts = self.flop_counts[name]
            for label, flops in [
                (name, sum(counts.values())),
                *((f" - {k}", n) for k, n in counts.items()),
            ]:
                share = f"{100 * flops / total:.2f}%" if total else "0%"
                rows.append((" " * level + label, _short(flops, total), share))
        if len(rows) == 1:
            rows.append(("Global", "0", "0%"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        rows.insert(1, tuple("-" * n for n in widths))
        return "\n".join(
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows
        )

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _Mode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.mode is not None
        self.mode.__exit__(*exc)
        self.mode = None
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table())


def _short(flops: int, total: int) -> str:
    power = min(max(0, (len(str(total)) - 1) // 3), 5)
    return (
        f"{flops / 1000**power:.3f}{('', 'K', 'M', 'B', 'T', 'Q')[power]}" if power else str(flops)
    )
