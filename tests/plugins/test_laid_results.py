"""Results that kernels write channels last: only where all that may get the call can."""

from __future__ import annotations

import as_user
import pytest
import tenon as tn
from added import HEAD, TAIL, private_cache  # noqa: F401

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

# Goes before the CPU's kernel, which writes packed results, and leaves those to it.
FIRST = r"""
#include <tenon/op_args.h>
static tn_status first(const tn_call *call, const void *args) {
    const tn__conv_args *a = (const tn__conv_args *)args;
    if (tn_view_is_contiguous(a->out)) return TN_DECLINE;
    return call->host->fail(TN_E_STATE, -1, "the result is channels last");
}
static tn_status activate(const tn_host *h, tn_txn *t) {
    tn_kernel_row row = {"_conv", TN_SIG__conv, first, NULL, TN_F64, 100, TN_K_LAID, 0};
    return h->register_kernels(t, 0, &row, sizeof row, 1);
}
"""


def test_a_kernel_without_the_flag_gets_packed_results() -> None:
    x = tn.randn(2, 3, 5, 4, dtype=tn.float64)
    w = tn.randn(4, 3, 3, 3, dtype=tn.float64)
    want = tn.nn.functional.conv2d(x, w)
    tn.load_inline(HEAD + FIRST + TAIL.replace("@NAME@", "laid"), "laid",
                   flags=["-Wno-unused-function"])  # fmt: skip
    got = tn.nn.functional.conv2d(x.to(memory_format=tn.channels_last), w)
    assert tn.equal(got, want)
    assert got.stride() == want.to(memory_format=tn.channels_last).stride()
