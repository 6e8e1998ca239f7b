"""Random numbers on the CUDA host harness: those that the CPU draws from the same seed."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_numbers_are_those_of_the_cpu() -> None:
    """Every distribution, dtype and layout, bit for bit, and the generator is left alike. On a GPU
    float64 may differ in the last bits where it passes through a logarithm, a sine or a tangent."""
    harness.script(
        f"on_gpu = {harness.ON_GPU}\n"
        + """
import itertools
floats = (tn.float16, tn.bfloat16, tn.float32, tn.float64)
wholes = (tn.uint8, tn.int8, tn.int16, tn.int32, tn.int64)
cases = [(floats + (tn.complex64, tn.complex128),
          (lambda t: t.uniform_(), lambda t: t.normal_(2, 3))),
         (floats, (lambda t: t.uniform_(-3, 5), lambda t: t.exponential_(2),
                   lambda t: t.cauchy_(1, 2), lambda t: t.log_normal_(),
                   lambda t: t.random_(-100, 100),
                   lambda t: t.bernoulli_(t.new_ones(t.shape) * 0.25))),
         (floats + wholes, (lambda t: t.geometric_(0.3), lambda t: t.random_(0, 100),
                            lambda t: t.random_())),
         ((tn.int32, tn.int64), (lambda t: t.random_(-5, 1 << 30),)),
         ((tn.int64,), (lambda t: t.random_(1 << 60), lambda t: t.random_(-(1 << 62), None))),
         ((tn.bool,) + floats + wholes,
          (lambda t: t.bernoulli_(0.3),
           lambda t: t.bernoulli_(tn.full(t.shape, 0.25, dtype=tn.float64, device=t.device)),
           lambda t: t.bernoulli_(tn.tensor(0.75, device=t.device))))]
layouts = (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[0, 3], lambda t: t[:0])
rounded = (tn.float64, tn.complex128) if on_gpu else ()
passing = ("normal_", "exponential_", "cauchy_", "log_normal_")
draws = 0
def same(got, want, dtype, fill):
    if dtype not in rounded or not set(passing) & set(fill.__code__.co_names):
        return tn.equal(got, want)
    # Of a number near 0, what it was before the mean was added and a sine was taken.
    return ((got - want).abs() <= 1e-15 * (8 + want.abs() * 8)).all()
for dtypes, fills in cases:
    for dtype, fill, layout in itertools.product(dtypes, fills, layouts):
        results = []
        for device in ("cpu", "cuda"):
            tn.manual_seed(5)
            t = tn.zeros(37, 41, dtype=dtype, device=device)
            for _ in range(2):
                fill(layout(t))
            results.append(t.cpu())
        want, got = results
        assert same(got, want, dtype, fill), (dtype, draws)
        draws += 1
for name in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_",
             "random_", "random__from", "random__to", "bernoulli_", "bernoulli__tensor"):
    assert tn.cuda.fallback_count(name) == (0, 0), name
"""
    )


def test_counts_are_those_of_the_cpu() -> None:
    """Few events and many, every dtype, layouts, parameters that are broadcast. A GPU's own
    functions may round otherwise, which seldom changes whether a number is taken."""
    harness.script(
        f"on_gpu = {harness.ON_GPU}\n"
        + """
def same(got, want):
    close = tn.isclose(got.double(), want.double(), rtol=1e-6 if on_gpu else 0, atol=0,
                       equal_nan=True)
    return close.sum().item() >= want.numel() * (0.999 if on_gpu else 1)

for dtype in (tn.float16, tn.bfloat16, tn.float32, tn.float64):
    x = tn.linspace(0, 1, 37 * 41).view(37, 41).to(dtype)
    for draw in (lambda x: tn.poisson(x * 5), lambda x: tn.poisson((x * 60).t()),
                 lambda x: tn.binomial((x * 90).floor(), x), lambda x: tn._standard_gamma(x * 4),
                 lambda x: tn.binomial(x.new_full((1, 1), 200), x[:, ::3]),
                 lambda x: tn.poisson(x[:0]), lambda x: tn._standard_gamma(x[3, 5] + 1e-3),
                 lambda x: tn._standard_gamma(x[:, :1].expand(37, 300) - 0.25)):
        results = []
        for device in ("cpu", "cuda"):
            tn.manual_seed(11)
            t = x.to(device)
            results.append([draw(t).cpu(), draw(t).cpu(), tn.rand(3, device=device).cpu()])
        for want, got in zip(*results):
            assert got.dtype == want.dtype and got.shape == want.shape and same(got, want), dtype
for name in ("_poisson_", "_binomial_", "_standard_gamma_"):
    assert tn.cuda.fallback_count(name) == (0, 0), name
for rate in (-1.0, float("nan")):
    try:
        tn.poisson(tn.tensor([2.0, rate], device="cuda")).cpu()
    except RuntimeError as e:
        assert "_poisson_" in str(e) and "rate is negative" in str(e), e
    else:
        raise AssertionError(rate)
"""
    )


def test_threads_draw_some_of_many() -> None:
    harness.script("""
def draw(device):
    tn.manual_seed(3)
    x = tn.empty((1 << 22) + 77, dtype=tn.uint8, device=device)
    return x.random_(0, 256).cpu()
assert tn.equal(draw("cuda"), draw("cpu"))
""")


def test_dropout_and_its_gradient() -> None:
    harness.script("""
for dtype in (tn.float16, tn.bfloat16, tn.float32, tn.float64):
    for shape in ((5,), (64, 33), (0, 3)):
        kept = []
        for device in ("cpu", "cuda"):
            tn.manual_seed(7)
            x = tn.ones(*shape, dtype=dtype, device=device).requires_grad_()
            y = tn.nn.functional.dropout(x.t() if x.ndim == 2 else x, 0.3)
            y.sum().backward()
            kept += [y.detach().cpu(), x.grad.cpu()]
        assert tn.equal(kept[0], kept[2]) and tn.equal(kept[1], kept[3])
assert tn.cuda.fallback_count("_dropout") == (0, 0)
""")


def test_states_are_kept_and_restored() -> None:
    harness.script("""
tn.manual_seed(3)
g = tn.Generator("cuda").manual_seed(11)
tn.randn(100, device="cuda", generator=g)
state = g.get_state()
a = tn.rand(50, device="cuda", generator=g)
g.set_state(state)
assert tn.equal(a, tn.rand(50, device="cuda", generator=g))
host = tn.Generator().manual_seed(11)
tn.randn(100, generator=host)
assert tn.equal(a.cpu(), tn.rand(50, generator=host))
""")


def test_what_is_out_of_range_is_told() -> None:
    harness.script("""
t = tn.zeros(10, device="cuda")
for call, words in ((lambda: t.uniform_(2, 1), "[from, to)"), (lambda: t.normal_(0, -1), "std"),
                    (lambda: t.bernoulli_(2), "[0, 1]"), (lambda: t.random_(5, 5), "from")):
    try:
        call()
        raise SystemExit("accepted")
    except RuntimeError as err:
        assert words in str(err), err
p = tn.full((10,), 0.5, device="cuda")
p[3] = float("nan")
t.bernoulli_(p)
try:
    t.cpu()
    raise SystemExit("accepted")
except RuntimeError as err:
    assert "bernoulli_" in str(err) and "probability" in str(err), err
assert (tn.ones(2, device="cuda") + 1).tolist() == [2, 2]
""")


def test_permutations_are_those_of_the_cpu() -> None:
    harness.script("""
for n in (0, 1, 2, 3, 5, 100, 1023, 1024, 1025, 5000):
    for _ in range(2 if n < 1000 else 1):
        tn.manual_seed(n)
        want = tn.randperm(n)
        tn.manual_seed(n)
        assert tn.equal(tn.randperm(n, device="cuda").cpu(), want), n
assert tn.cuda.fallback_count("_randperm_") == (0, 0)
""")


def test_draws_of_columns_are_those_of_the_cpu() -> None:
    harness.script("""
for dtype in (tn.float16, tn.bfloat16, tn.float32, tn.float64):
    for shape in ((7,), (3, 1), (4, 300), (2, 5000)):
        tn.manual_seed(1)
        w = tn.rand(*shape).to(dtype)
        w[..., ::3] = 0
        w[..., -1] = 1
        some = int((w[..., :] > 0).sum(-1).min())
        for k, again in ((1, False), (min(some, 40), False), (1, True), (50, True)):
            tn.manual_seed(2)
            want = w.multinomial(k, again)
            tn.manual_seed(2)
            assert tn.equal(w.to("cuda").multinomial(k, again).cpu(), want), (dtype, shape, k)
assert tn.cuda.fallback_count("multinomial") == (0, 0)
for bad in ([0.5, -1.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]):
    for again in (False, True):
        try:
            tn.tensor(bad, device="cuda").multinomial(2, again).cpu()
            raise SystemExit("accepted")
        except RuntimeError as err:
            assert "multinomial" in str(err) and "probability" in str(err), err
""")
