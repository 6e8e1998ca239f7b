"""Attention of half precision by cuDNN, on the host harness: which graphs it is given, and when our
own kernels take over."""

from __future__ import annotations

from pathlib import Path

import harness
import pytest
from test_attention import CHECK

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

COUNTS = (
    CHECK
    + """
import ctypes
def count(what):
    ask = ctypes.CDLL("libcudnn.so.9").cudnnHostCount
    ask.restype = ctypes.c_long
    return ask(what.encode())
def executed(work, n):
    before = count("execute")
    work()
    assert count("execute") == before + n, (count("execute") - before, n)
def attend(dtype=tn.bfloat16, **options):
    q = tn.ones(1, 2, 8, 16, dtype=dtype, device="cuda")
    y = F.scaled_dot_product_attention(q, q, q, **options)
    assert y.cpu().float().unique().tolist() == [1.0]
small = shapes(2, 4, 4, 24, 32, 16, 8)
"""
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_forward_and_backward(dtype: str, causal: bool) -> None:
    """Heads that share keys, rests of tiles, one key, values of another width."""
    harness.script(
        COUNTS
        + f"""
for sizes in ((2, 4, 4, 32, 32, 16, 16), (2, 4, 2, 20, 33, 24, 8), (1, 6, 1, 7, 1, 64, 128),
              (3, 2, 1, 40, 9, 8, 8)):
    executed(lambda: check(tn.{dtype}, shapes(*sizes), {causal}), 2)
"""
    )


def test_parts_of_one_tensor_are_not_copied() -> None:
    harness.script(
        COUNTS
        + """
n, s, h, d = 2, 20, 3, 16
packed = tn.randn(n, s, 3, h, d, dtype=tn.float16)
x = packed.to("cuda")
def attend(x):
    return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in x.unbind(2)), is_causal=True)
attend(x)
tn.cuda.reset_counters()
y = attend(x)
counted = tn.cuda.counters()
assert (counted["launches"], counted["library_calls"]) == (0, 1), counted
want = attend(packed.to(tn.float64))
assert tn.allclose(y.cpu().to(tn.float64), want, atol=4e-3)
"""
    )


def test_what_engines_do_not_take_is_left_to_own_kernels() -> None:
    harness.script(
        COUNTS
        + """
none = lambda *args, **options: executed(lambda: check(*args, **options), 0)
none(tn.float32, small, True)
none(tn.bfloat16, shapes(1, 2, 2, 9, 9, 12, 8), False)     # no multiple of eight
none(tn.bfloat16, shapes(1, 2, 2, 9, 9, 136, 8), False)    # wide
none(tn.bfloat16, small, False, mask=np.ones((24, 32), bool))
none(tn.bfloat16, small, False,  # packed, but not on 16 bytes
     view=lambda t: tn.cat([t.flatten()[:1], t.flatten()])[1:].reshape(t.shape))
none(tn.bfloat16, shapes(2, 2, 2, 1, 9, 8, 8), False)  # one query
"""
    )


def test_what_engines_cannot_load_is_packed_first() -> None:
    """Columns that are apart, rows that do not lie on 16 bytes, strides of zero."""
    harness.script(
        COUNTS
        + """
for view in (lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
             lambda t: tn.cat([t, t], 3)[..., ::2].copy_(t),
             lambda t: tn.cat([t, t], 3)[..., 1:t.shape[3] + 1].copy_(t)):
    executed(lambda: check(tn.bfloat16, small, True, view), 2)
q = tn.randn(3, 2, 8, 16, dtype=tn.float16, device="cuda").requires_grad_()
k = tn.randn(1, 2, 8, 16, dtype=tn.float16, device="cuda")
y = F.scaled_dot_product_attention(q, k.expand(3, 2, 8, 16), k.expand(3, 2, 8, 16))
y.sum().backward()  # whose gradient is one number for all
assert count("execute") == 6 + 2
a, b = q.detach().cpu().double().requires_grad_(), k.cpu().double().expand(3, 2, 8, 16)
want = F.scaled_dot_product_attention(a, b, b)
want.sum().backward()
assert tn.allclose(y.detach().cpu().double(), want.detach(), atol=4e-3)
assert tn.allclose(q.grad.cpu().double(), a.grad, atol=4e-3)
"""
    )


def test_the_order_of_sums_when_it_matters() -> None:
    """Without sums that threads add to in any order: their place in memory is no operand then."""
    harness.script(
        COUNTS
        + """
check(tn.bfloat16, small, True)
assert count("operands") == 14
tn.use_deterministic_algorithms(True)
check(tn.bfloat16, small, True)
assert count("operands") == 13
"""
    )


def test_a_plan_is_searched_for_once_and_kept_on_disk(tmp_path: Path) -> None:
    env = {"TENON_CUDA_CACHE": str(tmp_path)}
    first = "for _ in range(3): check(tn.float16, small, True)\n"
    asked = "assert (count('search'), count('text'), count('execute')) == "
    harness.script(COUNTS + first + asked + "(2, 0, 6)", **env)
    assert len(list(tmp_path.glob("*.plan"))) == 2
    harness.script(COUNTS + first + asked + "(0, 2, 6)", **env)
    another = "check(tn.float16, shapes(2, 4, 4, 24, 32, 24, 8), True)\n"
    harness.script(COUNTS + another + asked + "(2, 0, 2)", **env)


def test_a_scale_is_no_part_of_a_plan() -> None:
    harness.script(
        COUNTS
        + """
q, k, v = (tn.randn(1, 2, 8, 16, dtype=tn.float16) for _ in range(3))
for scale in (0.1, 1.0, 3.0):
    got = F.scaled_dot_product_attention(*(t.to("cuda") for t in (q, k, v)), scale=scale)
    want = F.scaled_dot_product_attention(*(t.double() for t in (q, k, v)), scale=scale)
    assert tn.allclose(got.cpu().double(), want, atol=4e-3)
assert (count("search"), count("execute")) == (1, 3)
"""
    )


def test_switches() -> None:
    harness.script(
        COUNTS
        + """
cuda = tn.backends.cuda
assert cuda.cudnn_sdp_enabled()
executed(attend, 1)
cuda.enable_cudnn_sdp(False)
assert not cuda.cudnn_sdp_enabled()
executed(attend, 0)
cuda.enable_cudnn_sdp(True)
with tn.backends.cudnn.flags(enabled=False):
    executed(attend, 0)
executed(attend, 1)
"""
    )
    harness.script(COUNTS + "executed(attend, 0)", TENON_CUDNN_SDP="0")


def test_a_recorded_graph_holds_attention() -> None:
    harness.script(
        COUNTS
        + """
x = tn.randn(1, 2, 24, 16, dtype=tn.float16, device="cuda").requires_grad_()
graph = tn.cuda.CUDAGraph()
def step():
    return tn.autograd.grad(F.scaled_dot_product_attention(x, x, x, is_causal=True).sum(), x)[0]
step()
with tn.cuda.graph(graph):
    g = step()
with tn.no_grad():
    x.mul_(0.5)
graph.replay()
want = step()
tn.cuda.synchronize()
assert count("execute") >= 6 and tn.equal(g, want)
"""
    )


@pytest.mark.parametrize("trouble", ["old", "9.9", "no-handle", "no-engine", "unsupported"])
def test_own_kernels_take_over(trouble: str) -> None:
    text = COUNTS + "check(tn.float16, small, True)\ncheck(tn.bfloat16, small, False)\n"
    text += "assert count('execute') == 0 and tn.cuda.fallback_count('_flash_attention') == (0, 0)"
    harness.script(text, TENON_CUDNN_HOST=trouble)


def test_a_failed_execution_is_an_error() -> None:
    said = harness.script(
        COUNTS
        + """
try:
    attend()
except RuntimeError as err:
    print(err)
attend()  # by our own kernel: the plan is given up
""",
        TENON_CUDNN_HOST="broken",
    )
    assert "_flash_attention: cuDNN returned error 5000 (the harness was asked to fail)" in said
