"""How time grows with size, over four decades: one case a size, all of the group `growth`. They run
under --growth alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from registry import Run, case, normal, whole

GROUP = "growth"

_spaces = itertools.count()


def grows(
    sizes: list[int],
    *,
    bytes: Callable[[int], float] = lambda n: 0.0,
    flops: Callable[[int], float] = lambda n: 0.0,
    numpy: bool = False,
) -> Callable[[Callable[[Any, int], Run]], Callable[[Any, int], Run]]:
    """A case `name[n]` for each size."""

    def add(make: Callable[[Any, int], Run]) -> Callable[[Any, int], Run]:
        for n in sizes:
            case(GROUP, name=f"{make.__name__}[{n}]", numpy=numpy, bytes=bytes(n), flops=flops(n))(
                lambda T, n=n: make(T, n)
            )
        return make

    return add


def powers(first: int, last: int, factor: int) -> list[int]:
    return list(itertools.takewhile(lambda n: n <= last, (first * factor**k for k in range(64))))


DECADES = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]


@grows(powers(4, 1 << 24, 4), bytes=lambda n: 12.0 * n, numpy=True)
def add_elements(T, n):
    a, b = normal(T, n), normal(T, n)
    return lambda: a + b


@grows(powers(4, 2048, 2), bytes=lambda n: 12.0 * n * n, flops=lambda n: 2.0 * n**3, numpy=True)
def matmul_of_rows(T, n):
    a, b = normal(T, n, n), normal(T, n, n)
    return lambda: a @ b


@grows(powers(2, 4096, 2), bytes=lambda n: 8192.0 * n, flops=lambda n: 2048.0 * n * n)
def attention_of_tokens(T, n):
    q, k, v = (normal(T, 1, 8, n, 64) for _ in range(3))
    return lambda: T.nn.functional.scaled_dot_product_attention(q, k, v)


@grows(powers(4, 1 << 22, 4), bytes=lambda n: 16.0 * n)
def sort_of_elements(T, n):
    x = normal(T, n)
    return lambda: T.sort(x)


@grows(powers(4, 1 << 22, 4), bytes=lambda n: 8.0 * n)
def unique_of_elements(T, n):
    x = whole(T, n, max(2, n // 4))
    return lambda: T.unique(x)


@grows(DECADES)
def backward_of_nodes(T, n):
    x = normal(T, 8).requires_grad_()

    def run():
        y = x
        for _ in range(n):
            y = y * 0.999
        x.grad = None
        y.sum().backward()
        return x.grad

    return run


@grows(DECADES, bytes=lambda n: 7 * 4.0 * 64 * n)
def adamw_of_tensors(T, n):
    params = [normal(T, 64).requires_grad_() for _ in range(n)]
    for p in params:
        p.grad = normal(T, 64) * 0.01
    opt = T.optim.AdamW(params, lr=1e-3)

    def run():
        opt.step()
        return params[0]

    return run


@grows([1, 10, 100, 1000])
def call_beside_operators(T, n):
    """Ten calls of the last of n operators that were registered."""
    space = f"growth{next(_spaces)}"
    library = T.library.Library(space, "DEF")
    for i in range(n):
        library.define(f"op{i}(Tensor x) -> Tensor")
        library.impl(f"op{i}", lambda x: x + 1, "CPU")
    x = normal(T, 8)
    last = getattr(getattr(T.ops, space), f"op{n - 1}")

    def run(_alive=library):
        for _ in range(10):
            y = last(x)
        return y

    return run
