"""A counter of the arithmetic of products and convolutions, forward and backward.

A dispatch mode sees the operators, those of a backward pass too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any

from tenon import Tensor
from tenon.ops import aten
from tenon.utils._python_dispatch import TorchDispatchMode
from tenon.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

Sizes = tuple[int, ...]


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


def _addmm_flop(bias: Any, a_shape: Sizes, b_shape: Sizes, *args: Any, **kwargs: Any) -> int:
    return mm_flop(a_shape, b_shape)


def _baddbmm_flop(bias: Any, a_shape: Sizes, b_shape: Sizes, *args: Any, **kwargs: Any) -> int:
    return bmm_flop(a_shape, b_shape)


def _conv_flop(
    x_shape: Sizes, w_shape: Sizes, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


def _conv_backward_flop(
    grad_shape: Sizes, x_shape: Sizes, w_shape: Sizes, bias: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any,
    out_shape: Any = None,
) -> int:  # fmt: skip
    by_input = conv_flop_count(grad_shape, w_shape, x_shape, not transposed)
    places = grad_shape[1] * prod(x_shape) if transposed else x_shape[1] * prod(grad_shape)
    return by_input * output_mask[0] + 2 * places * prod(w_shape[2:]) * output_mask[1]


def _sdpa_flop(query: Sizes, key: Sizes, value: Sizes, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _sdpa_backward_flop(
    grad: Sizes, query: Sizes, key: Sizes, value: Sizes, *args: Any, **kwargs: Any
) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


# The kernel of CPUs is counted by the name of that of GPUs.
_ATTENTION = {
    f"_scaled_dot_product_flash_attention_for_cpu{end}": getattr(
        aten, f"_scaled_dot_product_flash_attention{end}"
    )
    for end in ("", "_backward")
}
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


for _packet, _formula in (
    (aten.mm, mm_flop), (aten.addmm, _addmm_flop), (aten.bmm, bmm_flop),
    (aten.baddbmm, _baddbmm_flop), (aten.convolution, _conv_flop),
    (aten.convolution_backward, _conv_backward_flop),
    (aten._scaled_dot_product_flash_attention, _sdpa_flop),
    (aten._scaled_dot_product_flash_attention_backward, _sdpa_backward_flop),
):  # fmt: skip
    flop_registry[_packet] = _of_sizes(_formula)


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
        packet = _ATTENTION.get(packet.__name__, packet)
        if packet in self.flop_registry:
            flops = self.flop_registry[packet](*args, **kwargs, out_val=result)
            for name in self.mod_tracker.parents:
                self.flop_counts[name][packet] += flops

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
