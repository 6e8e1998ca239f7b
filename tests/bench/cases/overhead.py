"""Call overhead: operators on eight elements, where everything but the arithmetic is the cost."""

from __future__ import annotations

from functools import partial

from registry import case, fill, normal

small = partial(case, "overhead", threads=(1,))


@small(0.10, numpy=True, quick=True)
def add_8(T):
    a, b = normal(T, 8), normal(T, 8)
    return lambda: a + b


@small(0.05, numpy=True, quick=True)
def mul_scalar_8(T):
    a = normal(T, 8)
    return lambda: a * 2.0


@small(0.10, numpy=True)
def iadd_8(T):
    a, b = normal(T, 8), normal(T, 8) * 0.0

    def run():
        nonlocal a
        a += b
        return a

    return run


@small(0.10, numpy=True)
def greater_8(T):
    a, b = normal(T, 8), normal(T, 8) * 0.5
    return lambda: a > b


@small(0.15, numpy=lambda N: partial(normal(N, 8).reshape, 2, 4))
def view_8(T):
    a = normal(T, 8)
    return lambda: a.view(2, 4)


@small(0.15, numpy=True)
def index_8(T):
    a = normal(T, 8)
    return lambda: a[0]


@small(0.15, numpy=True)
def slice_8(T):
    a = normal(T, 8)
    return lambda: a[1:5]


@small(0.15, numpy=lambda N: normal(N, 8, 8).transpose)
def t_8x8(T):
    a = normal(T, 8, 8)
    return lambda: a.t()


def numpy_views(N):
    a = normal(N, 8, 8)

    def run():
        a.reshape(4, 16)
        a[0]
        return a.T

    return run


@small(0.15, numpy=numpy_views, quick=True)
def view_index_t(T):
    a = normal(T, 8, 8)

    def run():
        a.view(4, 16)
        a[0]
        return a.t()

    return run


@small(0.5, numpy=True)
def shape_8(T):
    a = normal(T, 8)
    return lambda: a.shape[0]


@small(0.3, numpy=True)
def item(T):
    a = normal(T, 1)
    return lambda: a.item()


@small(0.10, numpy=True)
def zeros_8(T):
    return lambda: T.zeros(8)


@small(0.10, numpy=lambda N: partial(N.array, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))
def tensor_of_list(T):
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    return lambda: T.tensor(values)


@small(0.10, numpy=True)
def add_out_8(T):
    a, b, c = normal(T, 8), normal(T, 8), normal(T, 8)
    return lambda: T.add(a, b, out=c)


@small(0.10, numpy=True, quick=True)
def sum_8(T):
    a = normal(T, 8)
    return lambda: a.sum()


@small(0.10)
def softmax_8(T):
    a = normal(T, 8)
    return lambda: T.softmax(a, 0)


@small(0.10, numpy=True)
def matmul_8x8(T):
    a, b = normal(T, 8, 8), normal(T, 8, 8)
    return lambda: a @ b


@small(0.10)
def add_grad_8(T):
    a, b = normal(T, 8).requires_grad_(), normal(T, 8)
    return lambda: a + b


@small(0.10, quick=True)
def chain10_fwd_bwd_8(T):
    a, g = normal(T, 8).requires_grad_(), T.ones(8)

    def run():
        a.grad = None
        y = a
        for _ in range(10):
            y = y * a
        y.backward(g)
        return a.grad

    return run


@small(0.20, quick=True)
def linear_module_8x8(T):
    m, x = fill(T, T.nn.Linear(8, 8)), normal(T, 8, 8)
    return lambda: m(x)


@small(0.20)
def linear_module_8x8_nograd(T):
    m, x = fill(T, T.nn.Linear(8, 8)).requires_grad_(False), normal(T, 8, 8)
    return lambda: m(x)


@small(0.10)
def linear_functional_8x8(T):
    w, b, x = normal(T, 8, 8), normal(T, 8), normal(T, 8, 8)
    return lambda: T.nn.functional.linear(x, w, b)
