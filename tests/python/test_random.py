"""Random numbers: the streams of PyTorch's CPU generator bit for bit, and Philox's own rules."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import stored
import tenon

torch: Any
try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

FLOATS = ["float32", "float64", "bfloat16", "float16"]
INTS = ["bool", "uint8", "int8", "int16", "int32", "int64"]
# An Intel processor's PyTorch draws bernoulli_ and exponential_ from another library's generator.
INTEL = os.path.exists("/proc/cpuinfo") and "GenuineIntel" in open("/proc/cpuinfo").read()


@pytest.fixture(params=[0, 1234, 2**40 + 7])
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    """Both libraries seeded alike, Tenon on PyTorch's stream."""
    tenon.set_rng("torch")
    tenon.manual_seed(request.param)
    if torch is not None:
        torch.manual_seed(request.param)
    yield request.param
    tenon.set_rng("philox")


@pytest.fixture
def philox() -> None:
    tenon.set_rng("philox")
    tenon.manual_seed(7)


def array(t: Any) -> np.ndarray:
    """The values in a dtype that NumPy has."""
    if str(t.dtype).endswith("bfloat16"):
        t = t.float()
    return t.detach().numpy()


def same(ours: Any, theirs: Any) -> None:
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    np.testing.assert_array_equal(array(ours), array(theirs))


def layouts(lib: Any, dtype: str, n: int) -> list[Any]:
    kind = getattr(lib, dtype)
    return [
        lib.zeros(n, dtype=kind),
        lib.zeros(7, n, dtype=kind).t(),
        lib.zeros(3, 2 * n, dtype=kind)[:, ::2],
        lib.zeros(2, 3, n, 4, dtype=kind).contiguous(memory_format=lib.channels_last),
    ]


def is_bool(t: Any) -> bool:
    return str(t.dtype).endswith("bool")


FLOAT_FILLS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda t: t.uniform_(),
    "uniform_range": lambda t: t.uniform_(-0.3, 0.7),
    "normal": lambda t: t.normal_(0.5, 2.3),
    "cauchy": lambda t: t.cauchy_(0.1, 1.7),
    "log_normal": lambda t: t.log_normal_(0.1, 0.7),
}
INT_FILLS: dict[str, Callable[[Any], Any]] = {
    "random": lambda t: t.random_(),
    "random_to": lambda t: t.random_(2 if is_bool(t) else 100),
    "random_from": lambda t: t.random_(0 if is_bool(t) else 3, None),
}
if not INTEL:
    FLOAT_FILLS["exponential"] = lambda t: t.exponential_(1.7)
    INT_FILLS["bernoulli"] = lambda t: t.bernoulli_(0.3)


def alike(draws: Callable[[Any], Any], dtype: str = "float32") -> None:
    """Both libraries draw the same numbers; where PyTorch is missing, its answers stand in."""
    want = stored.of_torch(draws, brief=True)
    stored.same(draws(tenon), want, {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 4e-7), 1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_FILLS)
def test_float_streams(seed: int, dtype: str, name: str) -> None:
    # One stream through all of them: nothing may draw too much or too little.
    sizes = (1, 5, 15, 16, 17, 31, 100, 1003)
    alike(lambda lib: [FLOAT_FILLS[name](t) for n in sizes for t in layouts(lib, dtype, n)], dtype)


@pytest.mark.parametrize("dtype", INTS + FLOATS)
@pytest.mark.parametrize("name", INT_FILLS)
def test_int_streams(seed: int, dtype: str, name: str) -> None:
    alike(lambda lib: [INT_FILLS[name](t) for n in (5, 600) for t in layouts(lib, dtype, n)])


def test_normal_numbers_are_pytorchs_to_the_last_bit(seed: int) -> None:
    def digest(lib: Any) -> str:
        return hashlib.sha256(lib.randn(1 << 16).numpy().tobytes()).hexdigest()

    assert digest(tenon) == stored.of_torch(digest)


def test_ranges_change_width_at_2_to_28(seed: int) -> None:
    ranges = [(0, 2**28 - 1), (-5, 2**28 - 6), (0, 2**28), (0, 2**32), (-(2**62), 2**62)]
    alike(lambda lib: [lib.randint(low, high, (50,)) for low, high in ranges])
    alike(lambda lib: lib.empty(50, dtype=lib.int64).random_(-(2**63), None))
    for ends in ((), (2**40 + 1,), (7, 2**40 + 1)):  # down to the last bits
        alike(lambda lib, ends=ends: lib.empty(20, dtype=lib.int64).random_(*ends) & 1023)


def test_factories(seed: int) -> None:
    for lib_call in (
        lambda lib: lib.rand(3, 5),
        lambda lib: lib.randn(4, 9),
        lambda lib: lib.randn(3, dtype=lib.float64),
        lambda lib: lib.rand(5, dtype=lib.complex64),
        lambda lib: lib.randn(20, dtype=lib.complex64),
        lambda lib: lib.randint(10, (7,)),
        lambda lib: lib.randint(-3, 12, (2, 3)),
        lambda lib: lib.randint(0, 5, (4,), dtype=lib.uint8),
        lambda lib: lib.randperm(20),
        lambda lib: lib.randperm(9, dtype=lib.int32),
        lambda lib: lib.rand_like(lib.zeros(4, 3)),
        lambda lib: lib.randn_like(lib.zeros(4, 30).t()),
        lambda lib: lib.randint_like(lib.zeros(6), 9),
        lambda lib: lib.normal(2.0, 3.0, (20,)),
        lambda lib: lib.normal(lib.arange(20.0), 0.5),
        lambda lib: lib.normal(1.0, lib.arange(20.0)),
        lambda lib: lib.normal(lib.zeros(2, 1), lib.ones(9)),
        lambda lib: lib.bernoulli(lib.full((30,), 0.3)),
        lambda lib: lib.bernoulli(lib.full((30,), 0.3, dtype=lib.float64)),
        lambda lib: lib.zeros(40, dtype=lib.int64).bernoulli_(lib.linspace(0, 1, 40)),
    ):
        alike(lib_call)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multinomial(seed: int, dtype: str) -> None:
    for shape in ((10,), (4, 10), (3, 500)):
        weights = np.abs(np.sin(np.arange(math.prod(shape)) + 0.5)).reshape(shape).astype(dtype)

        def draws(lib: Any, weights: np.ndarray = weights) -> list[Any]:
            cases = ((1, False), (1, True), (5, False), (5, True), (10, False))
            return [lib.multinomial(lib.tensor(weights), count, again) for count, again in cases]

        alike(draws)


@pytest.mark.skipif(INTEL, reason="PyTorch draws bernoulli_ differently on Intel processors")
@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout(seed: int, dtype: str) -> None:
    values = np.linspace(-3, 3, 4 * 5 * 6 * 7, dtype=np.float32).reshape(4, 5, 6, 7)

    def draws(lib: Any) -> list[Any]:
        results = []
        for permute in ((0, 1, 2, 3), (0, 2, 3, 1)):
            x = lib.tensor(values).to(getattr(lib, dtype)).permute(permute)
            x = x.detach().requires_grad_()
            y = lib.nn.functional.dropout(x, 0.3)
            y.sum().backward()
            results += [y, x.grad]
        return results

    alike(draws)


@needs_torch
def test_state_is_exchanged(seed: int) -> None:
    tenon.randn(7)
    torch.randn(7)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(tenon.get_rng_state().numpy(), state.numpy())
    want = torch.randn(40)
    tenon.rand(1000)
    tenon.set_rng_state(tenon.from_numpy(state.numpy()))
    same(tenon.randn(40), want)
    torch.set_rng_state(torch.from_numpy(tenon.get_rng_state().numpy()))
    same(tenon.rand(5), torch.rand(5))


@needs_torch
def test_generators_of_their_own(seed: int) -> None:
    mine, yours = tenon.Generator(), torch.Generator()
    same(tenon.randn(3, generator=mine), torch.randn(3, generator=yours))
    assert mine.initial_seed() == yours.initial_seed()
    mine.manual_seed(5)
    yours.manual_seed(5)
    same(tenon.randperm(30, generator=mine), torch.randperm(30, generator=yours))
    same(tenon.rand(3), torch.rand(3))


def test_initial_weights(seed: int) -> None:
    def layers(lib: Any) -> list[Any]:
        made = [lib.nn.Linear(20, 30), lib.nn.Embedding(10, 4), lib.nn.Conv2d(3, 4, 3)]
        return [p.detach() for layer in made for p in layer.parameters()]

    alike(layers)


def test_bad_state_is_refused(seed: int) -> None:
    state = tenon.get_rng_state()
    broken = state.clone()
    broken[8] = 2  # words left that do not fit the next word
    broken[9] = 2
    broken[16] = 200
    with pytest.raises(RuntimeError, match="mt19937"):
        tenon.set_rng_state(broken)
    with pytest.raises(RuntimeError, match="size"):
        tenon.set_rng_state(state[:100])
    np.testing.assert_array_equal(tenon.get_rng_state().numpy(), state.numpy())


def test_numbers_drawn_ahead_are_part_of_a_state(seed: int) -> None:
    """Normal ones come in pairs: the other one, of either precision, comes back with a state."""
    tenon.randn(1, dtype=tenon.float64)
    state = tenon.get_rng_state()
    want = tenon.randn(3, dtype=tenon.float64)
    tenon.rand(10)
    tenon.set_rng_state(state)
    np.testing.assert_array_equal(tenon.randn(3, dtype=tenon.float64).numpy(), want.numpy())
    ahead = state.clone()
    ahead[5048:5052] = tenon.tensor(list(np.float32(-1.25).tobytes()), dtype=tenon.uint8)
    ahead[5052] = 1
    tenon.set_rng_state(ahead)
    np.testing.assert_array_equal(tenon.get_rng_state().numpy(), ahead.numpy())
    tenon.set_rng_state(state)
    np.testing.assert_array_equal(tenon.get_rng_state().numpy(), state.numpy())
    assert (ahead != state).any()


def test_arguments_are_checked() -> None:
    x = tenon.zeros(3)
    for call in (
        lambda: x.uniform_(1, 0),
        lambda: x.normal_(0, -1),
        lambda: x.exponential_(-1),
        lambda: x.bernoulli_(2),
        lambda: x.cauchy_(0, -1),
        lambda: x.log_normal_(0, -1),
        lambda: x.geometric_(2),
        lambda: x.random_(5, 5),
        lambda: tenon.bernoulli(tenon.tensor([1.5])),
        lambda: tenon.randint(0, 300, (3,), dtype=tenon.uint8),
        lambda: tenon.randperm(-1),
        lambda: tenon.multinomial(tenon.tensor([0.1, 0.2]), 3),
        lambda: tenon.multinomial(tenon.tensor([0.1, -0.2]), 1),
        lambda: tenon.multinomial(tenon.tensor([0.0, 0.0]), 2, True),
        lambda: tenon.dropout(x, 1.5, True),
        lambda: tenon.normal(x, tenon.tensor([1.0, -1.0, 0.0])),
    ):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises((NotImplementedError, RuntimeError)):
        tenon.zeros(3, dtype=tenon.int64).uniform_()
    np.testing.assert_array_equal(x.numpy(), np.zeros(3))


# ---- Philox --------------------------------------------------------------------------------------


def test_philox_known_words(philox: None) -> None:
    """The published test vector of Philox4x32-10 with key and counter 0."""
    tenon.manual_seed(0)
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    got = tenon.rand(64)[::16].numpy()
    np.testing.assert_array_equal(got, np.array([(w >> 8) / 2**24 for w in words], np.float32))


def philox_words(seed: int, blocks: np.ndarray) -> np.ndarray:
    """(blocks, 4): Philox4x32-10 as Salmon and others published it, in NumPy."""
    low = np.uint64(0xFFFFFFFF)
    c = [blocks & low, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low,
        ]  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1)


def words_of(seed: int, n: int, first: int, wide: bool) -> tuple[np.ndarray, int]:
    """The words of n numbers, from a block on; the block after them. Sixteen blocks are a group,
    whose numbers take one word after the other of them all."""
    per = 32 if wide else 64
    groups = -(-n // per)
    blocks = np.arange(groups * 16, dtype=np.uint64) + np.uint64(first)
    w = philox_words(seed, blocks).reshape(groups, 16, 4).transpose(0, 2, 1)
    if wide:
        w = w[:, 1::2] << np.uint64(32) | w[:, ::2]
    return w.reshape(-1)[:n], first + groups * 16


def pairs(u: np.ndarray) -> np.ndarray:
    """Box and Muller's normal numbers of uniform ones; the two of a pair lie 16 apart."""
    whole = np.resize(u, -(-len(u) // 32) * 32).reshape(-1, 2, 16)
    radius, angle = np.sqrt(-2 * np.log1p(-whole[:, 0])), 2 * np.pi * whole[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[: len(u)]


# Draws, how many words a number takes, and what becomes of those words.
OF_WORDS: dict[str, tuple[Callable[[Any], Any], bool, Callable[[np.ndarray], np.ndarray]]] = {
    "uniform32": (lambda t: t.uniform_(-3, 5), False, lambda w: (w >> 8) / 2.0**24 * 8 - 3),
    "uniform64": (lambda t: t.double().uniform_(-3, 5), True,
                  lambda w: (w >> 11) / 2.0**53 * 8 - 3),
    "normal32": (lambda t: t.normal_(2, 3), False, lambda w: 2 + 3 * pairs((w >> 8) / 2.0**24)),
    "normal64": (lambda t: t.double().normal_(2, 3), True,
                 lambda w: 2 + 3 * pairs((w >> 11) / 2.0**53)),
    "log_normal": (lambda t: t.log_normal_(0.5, 0.25), True,
                   lambda w: np.exp(0.5 + 0.25 * pairs((w >> 11) / 2.0**53))),
    "exponential32": (lambda t: t.exponential_(1.75), False,
                      lambda w: -np.log(((w >> 9) + 0.5) / 2.0**23) / 1.75),
    "exponential64": (lambda t: t.double().exponential_(1.75), True,
                      lambda w: -np.log(((w >> 12) + 0.5) / 2.0**52) / 1.75),
    "cauchy": (lambda t: t.double().cauchy_(-1, 2), True,
               lambda w: 2 * np.tan(np.pi * (((w >> 12) + 0.5) / 2.0**52 - 0.5)) - 1),
    "geometric": (lambda t: t.double().geometric_(0.2), True,
                  lambda w: np.ceil(np.log(((w >> 12) + 0.5) / 2.0**52) / np.log1p(-0.2))),
}  # fmt: skip


@pytest.mark.parametrize("n", [1, 15, 16, 33, 64, 65, 511, 512, 513, 1500])
@pytest.mark.parametrize("name", OF_WORDS)
def test_philox_numbers_follow_from_words(philox: None, name: str, n: int) -> None:
    draw, wide, of_words = OF_WORDS[name]
    seed, block = (5 << 32) + 77, 0
    tenon.manual_seed(seed)
    for _ in range(2):
        words, block = words_of(seed, 32 * -(-n // 32) if "normal" in name else n, block, wide)
        got, want = draw(tenon.zeros(n)).numpy(), of_words(words)[:n]
        near = 1e-11 if got.dtype == np.float64 else 3e-6
        small = 1e-14 if name == "exponential64" else near  # the last bit of a word near the end
        np.testing.assert_allclose(got, want, rtol=small, atol=0 if small < near else near)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float16"])
def test_geometric_numbers_are_whole_in_every_dtype(philox: None, dtype: str) -> None:
    drawn = []
    for kind in (dtype, "float64"):
        tenon.manual_seed(3)
        drawn.append(tenon.zeros(300, dtype=getattr(tenon, kind)).geometric_(0.2))
    assert str(drawn[0].dtype).endswith(dtype) and drawn[0].double().equal(drawn[1])


@pytest.mark.parametrize("each", [False, True])
def test_philox_tosses_compare_whole_words(philox: None, each: bool) -> None:
    """The probability of n / 2^32 is that of the n words below n, to the last of them."""
    seed, n = (9 << 32) + 5, 70
    words, _ = words_of(seed, n, 0, False)
    for more, fall in ((0.0, False), (0.25, False), (0.75, True), (1.0, True)):
        p = (words.astype(np.float64) + more) / 2.0**32
        tenon.manual_seed(seed)
        if each:
            got = tenon.bernoulli(tenon.from_numpy(p)).bool()
            assert (got == fall).all(), more
            continue
        for i in range(0, n, 9):
            tenon.manual_seed(seed)
            assert tenon.zeros(n).bernoulli_(p[i])[i].item() == fall, (i, more)


def splitmix(state: int) -> Iterator[float]:
    """Vigna's SplitMix64, as numbers of [0, 1)."""
    most = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & most
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & most
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & most
        yield ((z ^ z >> 31) >> 11) / 2.0**53


def test_philox_counts_follow_from_words(philox: None) -> None:
    """Every element has a stream of its own, which begins at its words: Knuth's products of them
    are Poisson's numbers, gaps between successes those of the binomial distribution."""
    seed, n, block = (3 << 32) + 11, 150, 0
    rates, p = np.linspace(0.1, 9.9, n), np.linspace(0.01, 0.45, n)
    tenon.manual_seed(seed)
    for _ in range(2):
        words, block = words_of(seed, n, block, True)
        want = []
        for word, rate in zip(words, rates, strict=True):
            stream, k = splitmix(int(word)), 0
            product = next(stream)
            while product > math.exp(-rate):
                product, k = product * next(stream), k + 1
            want.append(k)
        assert tenon.poisson(tenon.from_numpy(rates)).tolist() == want
        words, block = words_of(seed, n, block, True)
        want = []
        for word, q in zip(words, p, strict=True):
            stream, k, gap = splitmix(int(word)), -1, 0.0
            while gap <= 20:
                gap, k = gap + math.ceil(math.log(next(stream)) / math.log1p(-q)), k + 1
            want.append(k)
        assert tenon.binomial(tenon.full((n,), 20.0).double(), tenon.from_numpy(p)).tolist() == want


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_philox_does_not_depend_on_threads(philox: None, dtype: str) -> None:
    results = []
    threads = tenon.get_num_threads()
    for count in (1, 3):
        tenon.set_num_threads(count)
        tenon.manual_seed(3)
        kind = getattr(tenon, dtype)
        results.append([array(f(100_003, dtype=kind)) for f in (tenon.rand, tenon.randn)])
    tenon.set_num_threads(threads)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_philox_does_not_depend_on_layout(philox: None) -> None:
    results = []
    for make in (lambda: tenon.zeros(40, 50), lambda: tenon.zeros(50, 40).t()):
        tenon.manual_seed(3)
        results.append(make().normal_().numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_philox_does_not_depend_on_instructions(philox: None, isa: str) -> None:
    code = (
        "import tenon, hashlib; tenon.set_rng('philox'); tenon.manual_seed(11);"
        "h = hashlib.sha256();"
        "[h.update(t.numpy().tobytes()) for t in (tenon.rand(999), tenon.randint(9, (99,)),"
        " tenon.zeros(99).exponential_(), tenon.randn(999))]; print(h.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], env={**os.environ, "TENON_CPU_ISA": name},
            capture_output=True, text=True, check=True,
        ).stdout
        for name in (isa, "avx512")
    }  # fmt: skip
    assert len(digests) == 1


def test_philox_moments(philox: None) -> None:
    n = 200_000
    for t, mean, var in (
        (tenon.rand(n), 0.5, 1 / 12),
        (tenon.rand(n, dtype=tenon.float64), 0.5, 1 / 12),
        (tenon.randn(n), 0.0, 1.0),
        (tenon.randn(n, dtype=tenon.float64), 0.0, 1.0),
        (tenon.zeros(n).exponential_(2.0), 0.5, 0.25),
        (tenon.zeros(n).bernoulli_(0.3), 0.3, 0.21),
        (tenon.zeros(n).geometric_(0.25), 4.0, 12.0),
        (tenon.randint(0, 1000, (n,)), 499.5, (1000**2 - 1) / 12),
    ):
        x = t.numpy().astype(np.float64)
        assert abs(x.mean() - mean) < 5 * math.sqrt(var / n)
        assert abs(x.var() / var - 1) < 0.05
    assert sorted(tenon.randperm(1000).tolist()) == list(range(1000))


def test_philox_draws_do_not_repeat(philox: None) -> None:
    a, b = tenon.rand(1000), tenon.rand(1000)
    assert not np.isin(a.numpy(), b.numpy()).mean() > 0.01
    state = tenon.get_rng_state()
    assert state.numel() == 16
    c = tenon.rand(10)
    tenon.set_rng_state(state)
    np.testing.assert_array_equal(tenon.rand(10).numpy(), c.numpy())


def test_multinomial_frequencies(philox: None) -> None:
    weights = tenon.tensor([1.0, 0.0, 3.0, 4.0])
    drawn = tenon.multinomial(weights, 80_000, True).numpy()
    counts = np.bincount(drawn, minlength=4) / 80_000
    np.testing.assert_allclose(counts, [0.125, 0, 0.375, 0.5], atol=0.01)
    rows = tenon.multinomial(tenon.ones(50, 8), 8).numpy()
    assert all(sorted(r) == list(range(8)) for r in rows)


def test_dropout_and_its_gradient(philox: None) -> None:
    x = tenon.randn(10_000, requires_grad=True)
    y = tenon.nn.functional.dropout(x, 0.25)
    kept = (y != 0).detach().numpy()
    assert abs(kept.mean() - 0.75) < 0.02
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), kept / 0.75, rtol=1e-6)
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() * x.grad.numpy(), rtol=1e-6)
    same(tenon.nn.functional.dropout(x, 0.25, training=False), x)
    np.testing.assert_array_equal(tenon.dropout(x, 1.0, True).detach().numpy(), 0.0)


def test_forms_of_dropout(philox: None) -> None:
    """native_dropout tells what it kept, dropout_ writes where it is."""
    x = tenon.arange(1.0, 20001.0).reshape(100, 200).requires_grad_()
    y, kept = tenon.native_dropout(x, 0.25, True)
    assert kept.dtype == tenon.bool and abs(kept.double().mean().item() - 0.75) < 0.02
    np.testing.assert_allclose(array(y), np.where(array(kept), array(x) / 0.75, 0), rtol=1e-6)
    (y * 3).sum().backward()
    np.testing.assert_allclose(array(x.grad), np.where(array(kept), 4, 0), rtol=1e-6)
    y, kept = tenon.native_dropout(x, 0.25, False)
    assert bool(kept.all())
    same(y, x)
    x.grad = None
    hidden = x * 2
    assert tenon.dropout_(hidden, 0.5, True) is hidden
    factor = array(hidden) / array(x)
    assert set(np.unique(factor.round(4))) == {0.0, 4.0}
    hidden.sum().backward()
    np.testing.assert_allclose(array(x.grad), factor, rtol=1e-6)
    same(tenon.dropout_(x.detach().clone(), 0.5, False), x)


def test_seed_from_the_system(philox: None) -> None:
    first, second = tenon.seed(), tenon.seed()
    assert first != second
    assert tenon.initial_seed() == second


def test_fork_rng() -> None:
    """What is drawn inside leaves no trace, after an error either."""
    tenon.manual_seed(3)
    expected = tenon.rand(4).tolist()
    tenon.manual_seed(3)
    with tenon.random.fork_rng():
        tenon.manual_seed(99)
        tenon.rand(10)
    assert tenon.rand(4).tolist() == expected
    tenon.manual_seed(3)
    with contextlib.suppress(KeyError), tenon.random.fork_rng(devices=[]):
        tenon.rand(3)
        raise KeyError
    assert tenon.rand(4).tolist() == expected
    tenon.manual_seed(3)
    with tenon.random.fork_rng(enabled=False):
        tenon.rand(4)
    assert tenon.rand(4).tolist() != expected
    with pytest.raises(RuntimeError, match="no devices but the CPU"):  # noqa: SIM117
        with tenon.random.fork_rng(devices=[0], device_type="cpu"):
            pass


# ---- Counts ------------------------------------------------------------------------------------

RATES = [0.0, 0.25, 1.0, 9.99, 10.0, 40.0, 1e5]
PROBABILITIES = [0.0, 1e-3, 0.1, 0.5, 0.75, 0.999, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_are_pytorchs(seed: int, dtype: str) -> None:
    def draws(lib: Any) -> list[Any]:
        kind = getattr(lib, dtype)
        rate = lib.tensor(RATES, dtype=kind).reshape(-1, 1).expand(-1, 30)
        count = lib.tensor([0.0, 3.0, 50.0, 1e6], dtype=kind).reshape(-1, 1).expand(-1, 7)
        prob = lib.tensor(PROBABILITIES, dtype=kind).expand(4, 7).contiguous()
        return [lib.poisson(rate), lib.binomial(count, prob), lib.poisson(rate.contiguous().t()),
                lib.rand(3)]  # fmt: skip

    alike(draws)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_waiting_times_are_pytorchs(seed: int, dtype: str) -> None:
    def draws(lib: Any) -> list[Any]:
        kind = getattr(lib, dtype)
        a = lib.tensor([1e-3, 0.2, 0.999, 1.0, 2.5, 40.0, 1e5], dtype=kind).reshape(-1, 1)
        return [lib._standard_gamma(a.expand(-1, 30)), lib.randn(3),
                lib._standard_gamma(a.expand(-1, 3).t()), lib.rand(3)]  # fmt: skip

    alike(draws)


@pytest.mark.parametrize("a", [0.05, 0.7, 1.0, 4.0, 300.0])
def test_waiting_times_have_their_distribution(philox: None, a: float) -> None:
    x = tenon._standard_gamma(tenon.full((20000,), a, dtype=tenon.float64)).numpy()
    assert scipy.stats.kstest(x, scipy.stats.gamma(a).cdf).pvalue > 1e-3
    first = tenon._standard_gamma(tenon.full((9,), a, dtype=tenon.float16)).numpy()
    assert (first >= np.finfo(np.float16).tiny).all()


def test_waiting_times_at_their_ends(philox: None) -> None:
    got = tenon._standard_gamma(tenon.tensor([0.0, -1.0, math.nan])).tolist()
    assert got[0] == np.finfo(np.float32).tiny and math.isnan(got[1]) and math.isnan(got[2])


@pytest.mark.parametrize("a", [0.3, 3.0, 80.0, 2e4, 9e5, 2e6, 1e9])
def test_slopes_of_waiting_times(a: float) -> None:
    """Against SciPy's inverse at constant shares."""
    share = np.array([0.01, 0.3, 0.6, 0.99])
    z, h = scipy.special.gammaincinv(a, share), 1e-3 * math.sqrt(a) if a > 1 else 1e-5
    want = (scipy.special.gammaincinv(a + h, share) - scipy.special.gammaincinv(a - h, share)) / (
        2 * h
    )
    got = tenon._standard_gamma_grad(tenon.tensor(a, dtype=tenon.float64), tenon.tensor(z))
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-6)


@pytest.mark.parametrize("a", [0.3, 3.0, 80.0, 2e4, 9e5])
def test_slopes_of_waiting_times_that_hardly_occur(a: float) -> None:
    """Far above the shape, where the terms of the lower series overflow."""
    share = np.array([1e-20, 1e-60, 1e-250])
    z, h = scipy.special.gammainccinv(a, share), 1e-3 * math.sqrt(a) if a > 1 else 1e-5
    above, below = (scipy.special.gammainccinv(a + d, share) for d in (h, -h))
    got = tenon._standard_gamma_grad(tenon.tensor(a, dtype=tenon.float64), tenon.tensor(z))
    np.testing.assert_allclose(got.numpy(), (above - below) / (2 * h), rtol=2e-6)
    # dz/da goes to log(z) - digamma(a): the share of larger draws to their density.
    far = np.array([2.0**40 * a, 2.0**62 * a])
    got = tenon._standard_gamma_grad(tenon.tensor(a, dtype=tenon.float64), tenon.tensor(far))
    np.testing.assert_allclose(got.numpy(), np.log(far) - scipy.special.digamma(a), rtol=1e-6)


def test_counts_have_their_means_and_variances(philox: None) -> None:
    n = 40000
    for rate in (0.5, 7.0, 12.0, 300.0):
        x = tenon.poisson(tenon.full((n,), rate, dtype=tenon.float64)).numpy()
        assert (x == np.floor(x)).all()
        assert abs(x.mean() - rate) < 5 * math.sqrt(rate / n)
        assert abs(x.var() / rate - 1) < 0.06
    for count, p in ((5.0, 0.3), (40.0, 0.9), (1000.0, 0.4)):
        args = (tenon.full((n,), count, dtype=tenon.float64), tenon.tensor(p, dtype=tenon.float64))
        x = tenon.binomial(*args).numpy()
        assert x.min() >= 0 and x.max() <= count
        assert abs(x.mean() - count * p) < 5 * math.sqrt(count * p * (1 - p) / n)
        assert abs(x.var() / (count * p * (1 - p)) - 1) < 0.06


def test_counts_depend_on_the_place_alone(philox: None) -> None:
    rate = tenon.full((5000,), 15.0)
    tenon.manual_seed(3)
    first = tenon.poisson(rate)
    tenon.manual_seed(3)
    assert tenon.poisson(rate[:700]).equal(first[:700])
    assert not tenon.poisson(rate).equal(first)


def test_counts_at_their_ends(philox: None) -> None:
    inf, nan = math.inf, math.nan
    assert tenon.poisson(tenon.tensor([0.0, inf])).tolist() == [0, inf]
    for bad in (-1.0, nan):
        with pytest.raises(RuntimeError, match="rate"):
            tenon.poisson(tenon.tensor([bad]))
    got = tenon.binomial(tenon.tensor([4.0, 4.0, inf, 0.0]), tenon.tensor([1.5, -1.0, 0.5, 0.5]))
    np.testing.assert_array_equal(got.numpy(), [4, 0, nan, 0])
    with pytest.raises(ValueError, match="floating-point"):
        tenon.binomial(tenon.tensor([4]), tenon.tensor([0.5]))
    x = tenon.tensor([2.0], requires_grad=True)
    tenon.poisson(x).sum().backward()
    assert x.grad.item() == 0


# ---- What operators make of the draws ------------------------------------------------------------


def test_whole_numbers_have_their_bounds_and_dtypes(philox: None) -> None:
    assert tenon.randint(4, (3,)).dtype == tenon.int64
    assert tenon.randint(2, (3,), dtype=tenon.bool).dtype == tenon.bool
    assert tenon.randint(3, 6, (3,), dtype=tenon.uint8).dtype == tenon.uint8
    like = tenon.zeros(500, dtype=tenon.float64)
    for t, numbers in (
        (tenon.randint(3, (500,)), {0, 1, 2}), (tenon.randint(-2, 1, (500,)), {-2, -1, 0}),
        (tenon.randint_like(like, 3), {0, 1, 2}), (tenon.randint_like(like, 3, 6), {3, 4, 5}),
        (tenon.bernoulli(like, 0.5), {0, 1}), (tenon.bernoulli(like + 0.5), {0, 1}),
    ):  # fmt: skip
        assert set(t.tolist()) == numbers


def test_permutations_fit_their_dtype(philox: None) -> None:
    assert tenon.randperm(0).shape == (0,) and tenon.randperm(1).tolist() == [0]
    for dtype, most in ((tenon.float16, 2049), (tenon.bfloat16, 257), (tenon.int8, 128)):
        numbers = tenon.randperm(most, dtype=dtype)
        assert numbers.dtype == dtype
        want = tenon.arange(most).to(dtype).double().tolist()
        assert sorted(numbers.double().tolist()) == want
    for n, dtype, words in (
        (2050, tenon.float16, "n cannot be greater than 2049 for type"),
        (258, tenon.bfloat16, "n cannot be greater than 257 for type"),
        ((1 << 24) + 2, tenon.float32, "n cannot be greater than 16777217 for type"),
        (129, tenon.int8, "cannot be converted|overflow|too large"),
        (-1, tenon.int64, r"negative dimension -1: \[-1\]"),
    ):
        with pytest.raises(RuntimeError, match=words):
            tenon.randperm(n, dtype=dtype)
    for dtype in (tenon.bool, tenon.complex64):
        with pytest.raises(NotImplementedError, match='"randperm" not implemented for'):
            tenon.randperm(2, dtype=dtype)


def test_normal_numbers_without_deviation_are_their_means(philox: None) -> None:
    mean = tenon.tensor([[1.5], [-2.0]])
    none = tenon.zeros(3)
    for got in (tenon.normal(mean, none), tenon.normal(mean, 0.0).expand(2, 3)):
        assert got.tolist() == mean.expand(2, 3).tolist()
    assert tenon.normal(4.0, none).tolist() == [4.0] * 3
    assert tenon.normal(tenon.zeros(0), tenon.zeros(0)).shape == (0,)
    for std in (tenon.tensor([-1.0]), tenon.tensor([1.0, -0.5]), tenon.tensor([float("nan")])):
        for mean_ in (0.0, tenon.zeros(1)):
            with pytest.raises(RuntimeError, match="expects all elements of std >= 0.0"):
                tenon.normal(mean_, std)
    with pytest.raises(RuntimeError, match="standard deviation to be non-complex"):
        tenon.normal(0.0, tenon.ones(2, dtype=tenon.complex64))
    scaled = tenon.normal(tenon.full((20_000,), 3.0), tenon.tensor([2.0])).numpy()
    assert abs(scaled.mean() - 3) < 0.1 and abs(scaled.std() - 2) < 0.1


def test_parameters_that_nothing_can_be_drawn_by(philox: None) -> None:
    whole, half = tenon.ones(2, dtype=tenon.int64), tenon.full((2,), 0.5)
    for call in (
        lambda: tenon.poisson(whole),
        lambda: tenon._standard_gamma(whole),
        lambda: tenon.zeros(2).bernoulli_(whole),
        lambda: tenon.binomial(whole, half),
        lambda: tenon.binomial(half, half.double()),
    ):
        with pytest.raises((NotImplementedError, RuntimeError, ValueError), match="float|implem"):
            call()
    with pytest.raises(RuntimeError, match=r"\[2\] doesn't match the broadcast shape \[3, 2\]"):
        tenon.zeros(2).bernoulli_(tenon.zeros(3, 1))
    counts = tenon.binomial(tenon.tensor([[3.0], [0.0]]), tenon.tensor([0.0, 1.0]))
    assert counts.tolist() == [[0.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_scales_what_it_keeps(philox: None, dtype: str) -> None:
    """By 1 / (1 - p) in the arithmetic of the dtype; packed or with gaps, at the ends nothing."""
    kind = getattr(tenon, dtype)
    scale = 1 / (1 - 0.3) if dtype == "float64" else np.float32(1) / np.float32(1 - 0.3)
    scale = tenon.tensor(float(scale), dtype=kind).item()
    ones = tenon.ones(40, 60, dtype=kind)
    outs = [tenon.dropout(t, 0.3, True) for t in (ones, ones.t(), ones[:, ::2])]
    outs += [tenon.native_dropout(ones, 0.3, True)[0], tenon.dropout_(ones.clone(), 0.3, True)]
    for out in outs:
        assert set(out.double().reshape(-1).tolist()) == {0.0, scale}
        assert abs((out != 0).double().mean().item() - 0.7) < 0.08
    assert outs[1].shape == (60, 40) and outs[2].shape == (40, 30)
    ramp = tenon.arange(12, dtype=kind).reshape(3, 4) + 1
    kept, mask = tenon.native_dropout(ramp, 0.3, True)
    assert mask.dtype == tenon.bool and kept.tolist() == (ramp * scale * mask).tolist()
    state = tenon.get_rng_state()
    for p, train, want in ((0.0, True, 1), (0.3, False, 1), (1.0, True, 0), (1.0, False, 1)):
        for out in (tenon.dropout(ramp, p, train), tenon.dropout_(ramp.clone(), p, train)):
            assert out.tolist() == (ramp * want).tolist()
        kept, mask = tenon.native_dropout(ramp, p, train)
        assert kept.tolist() == (ramp * want).tolist() and mask.tolist() == [[bool(want)] * 4] * 3
    assert tenon.equal(tenon.get_rng_state(), state)
    one = tenon.ones(1, dtype=kind)
    assert {tenon.dropout(one, 0.5, True).item() for _ in range(40)} == {0.0, 2.0}
    assert tenon.dropout(tenon.zeros(0, dtype=kind), 0.5, True).shape == (0,)
    for p in (-0.1, 1.1):
        for drop in (tenon.dropout, tenon.dropout_, tenon.native_dropout):
            with pytest.raises(RuntimeError, match="has to be between 0 and 1, but got"):
                drop(ramp, p, True)


def test_bounds_of_wide_unsigned_integers() -> None:
    """Kernels see them as signed integers that hold more."""
    for name, bits in (("uint16", 16), ("uint32", 32)):
        x = tenon.zeros(200, dtype=getattr(tenon, name))
        assert x.random_(2**bits - 1, 2**bits).tolist() == [2**bits - 1] * 200
        assert set(x.random_(0, 2).tolist()) == {0, 1}
        for bounds, words in (
            ((0, 2**bits + 1), "to - 1 is out of bounds"),
            ((2**bits + 1,), "to - 1 is out of bounds"),
            ((-1, 2), "from is out of bounds"),
            ((0, 0), "expects 'from' to be less than 'to'"),
            ((0,), "expects 'from' to be less than 'to'"),
        ):
            with pytest.raises(RuntimeError, match=words):
                x.random_(*bounds)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "bool"])
def test_whole_numbers_are_drawn_up_to_the_bounds_of_their_dtype(name: str) -> None:
    kind = getattr(tenon, name)
    low, high = (0, 1) if name == "bool" else (tenon.iinfo(kind).min, tenon.iinfo(kind).max)
    x = tenon.empty(4, dtype=kind)
    assert x.random_(low, low + 1).tolist() == [low] * 4
    assert tenon.randint(low, low + 1, (3,), dtype=kind).tolist() == [low] * 3
    if name == "int64":
        return  # there is no bound beyond
    assert x.random_(high, high + 1).tolist() == [high] * 4
    for bounds, words in (((low - 1, low + 1), "from is out of"), ((low, high + 2), "to - 1 is")):
        with pytest.raises(RuntimeError, match=words):
            x.random_(*bounds)
