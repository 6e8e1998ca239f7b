"""Random numbers, sorting, scans, compaction."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from registry import ORDERS, case, normal, whole

M1 = 1 << 20
VOCABULARY = 64 * 50257

# Ten rounds of Philox and the conversion, counted as operations at the multiply-add rate. The
# frameworks draw different numbers: only the moments can agree.
random = partial(case, "random", flops=72.0 * M1, bytes=4 * M1, rtol=2e-2)
sort = partial(case, "sort")
scan = partial(case, "scan and compaction")


def generator() -> np.random.Generator:
    return np.random.default_rng(1)


@random(0.10, numpy=lambda N: partial(generator().random, M1, N.float32), quick=True)
def rand_1M(T):
    T.manual_seed(1)
    return lambda: T.rand(M1)


@random(0.10, numpy=lambda N: partial(generator().standard_normal, M1, N.float32))
def randn_1M(T):
    T.manual_seed(1)
    return lambda: T.randn(M1)


@random(0.10)
def bernoulli_1M(T):
    T.manual_seed(1)
    p = T.full((M1,), 0.3)
    return lambda: T.bernoulli(p)


@random(0.10)
def dropout_1M(T):
    T.manual_seed(1)
    a = normal(T, M1)
    return lambda: T.nn.functional.dropout(a, 0.5, True)


@random(0.10, numpy=lambda N: partial(generator().permutation, M1))
def randperm_1M(T):
    T.manual_seed(1)
    return lambda: T.randperm(M1)


@random(0.10, numpy=lambda N: partial(generator().integers, 0, 1000, M1))
def randint_1M(T):
    T.manual_seed(1)
    return lambda: T.randint(0, 1000, (M1,))


# -- sort --------------------------------------------------------------------------------------


def numpy_sort(*shape: int) -> Any:
    def make(N: Any, form: str) -> Any:
        a = normal(N, *shape, form=form)
        return lambda: N.sort(a)

    return make


# A radix sort of 32-bit keys with their places passes over its data four times.
@sort(0.5, numpy=numpy_sort(M1), bytes=4 * 2 * 8 * M1, forms=ORDERS)
def sort_1M(T, form):
    a = normal(T, M1, form=form)
    return lambda: T.sort(a)


@sort(0.5, numpy=numpy_sort(64, 4096), bytes=4 * 2 * 8 * 64 * 4096, quick=True, forms=ORDERS)
def sort_64x4096(T, form):
    a = normal(T, 64, 4096, form=form)
    return lambda: T.sort(a)


@sort(0.5, bytes=4 * VOCABULARY, forms=ORDERS)
def topk50_64x50257(T, form):
    a = normal(T, 64, 50257, form=form)
    return lambda: T.topk(a, 50)


# -- scan and compaction -----------------------------------------------------------------------


def numpy_argmax(N):
    a = normal(N, 64, 50257)
    return lambda: a.argmax(1)


@scan(0.15, numpy=numpy_argmax, bytes=4 * VOCABULARY)
def argmax_64x50257(T):
    a = normal(T, 64, 50257)
    return lambda: T.argmax(a, 1)


def numpy_cumsum(N):
    a = normal(N, M1)
    return lambda: a.cumsum()


@scan(0.15, numpy=numpy_cumsum, bytes=8 * M1)
def cumsum_1M(T):
    a = normal(T, M1)
    return lambda: T.cumsum(a, 0)


def numpy_nonzero(N, form):
    a = normal(N, M1, form=form) > 0.4
    return lambda: N.flatnonzero(a)


@scan(0.10, numpy=numpy_nonzero, bytes=M1 + 8 * M1 * 3 / 8, forms=ORDERS)
def nonzero_1M(T, form):
    a = normal(T, M1, form=form) > 0.4
    return lambda: T.nonzero(a)


def numpy_select(N, form):
    a = normal(N, M1, form=form)
    return lambda: a[a > 0.4]


@scan(0.10, numpy=numpy_select, bytes=6 * M1 + 4 * M1 * 3 / 8, quick=True, forms=ORDERS)
def masked_select_1M(T, form):
    a = normal(T, M1, form=form)
    return lambda: a[a > 0.4]


def unique(name: str, below: int) -> None:
    """Of whole numbers, few or nearly all of which are different."""

    def make(T: Any, form: str) -> Any:
        a = whole(T, M1, below, form)
        return lambda: T.unique(a)

    scan(0.10, name=name, numpy=True, bytes=8 * M1, forms=ORDERS)(make)


unique("unique_1M", 1000)
unique("unique_1M_of_many", 1 << 40)
