"""Every operator of the table with one argument changed at a time, against PyTorch: results and
gradients of both orders where PyTorch has them, an error where it has none.

The calls come from the entries' samples by `vary.py`; a new operator is covered without being
named.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from both import flat
from table import Case, call, sampled, tensor_args
from test_history import BEYOND, derivatives, roots
from test_ops import FLOATS
from test_torch import TIES, torch_args, torch_call
from tolerances import tolerance
from vary import varied

ERRORS = (RuntimeError, TypeError, IndexError, ValueError, AttributeError, OverflowError,
          AssertionError)  # fmt: skip
LACKING = re.compile(
    r"implemented|supported|[Uu]nsupported|dtype|only supports|erivative|differentiable"
)
# What PyTorch refuses and Tenon computes: broadcasting losses, transforms of nothing, shapes that a
# layer in Python refuses before the operator is called, zero points outside of their levels, whose
# values would have to be looked at; a form of tensordot that it has not.
MORE = {
    "conv_transpose1d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "repeat_interleave",
    "addr", "cross", "cov", "rms_norm", "view_copy_as_type", "view_as_type", "view_as_complex",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "margin_ranking_loss",
    "gaussian_nll_loss", "cosine_embedding_loss", "triplet_margin_loss", "multi_margin_loss",
    "multilabel_margin_loss", "fake_quantize_per_channel_affine", "tensordot",
}  # fmt: skip
# The other way round, and where PyTorch's numbers are not those of the definition, by calls: it
# copies where a factor does not change a size, and halves where it doubles one; has no order of the
# bounds of logit, overflows; gives statistics a history whose gradient it refuses.
LESS = {
    "interpolate": r"scale_factor=1\.25|input\[2, 1, 2, 3, 4\]",
    "index_add": r"input\[0", "index_add_": r"self\[0",
    "logit": r"eps=0\.7",
    "trapezoid": r"y\[0", "cumulative_trapezoid": r"y\[0",
    "trapezoid_x": r"y\[[02]", "cumulative_trapezoid_x": r"y\[[02]",
    "linear": r"weight\[4\]",
    "logsumexp": r"input\[0",
    "prod": r"float16",
    "grid_sampler": r"mode=-1",
    "upsample_nearest2d": r"scales_h=",
    "native_group_norm": r".",
}  # fmt: skip
# PyTorch's numbers are good to this.
ROUGH = {"special_bessel_y0": 1e-5, "special_bessel_y1": 1e-4, "special_airy_ai": 1e-3}


def dtype_of(row: dict[str, Any]) -> str:
    return next(d for d in ("float64", "int64", "bool", "complex128") if d in row["dtypes"])


def theirs(torch: Any, case: Case) -> Any:
    """Results and gradients; "refused"; or "lacking", where PyTorch has no such function, keyword,
    kernel or gradient."""
    try:
        args = torch_args(torch, case)
        inputs = [] if case.row["inplace_only"] else roots(torch, args)
        results = flat(torch_call(torch, case.row, args))
    except (AttributeError, TypeError):
        return "lacking"
    except ERRORS as err:
        return "lacking" if LACKING.search(str(err)) else "refused"
    tensors = [r for r in results if hasattr(r, "dtype")]
    if not inputs or case.row["name"] in BEYOND:
        return [results, None]
    try:
        return [results, derivatives(torch, tensors, inputs, 2)]
    except ERRORS:
        return [results, None]


def tolerances(case: Case, results: list[Any]) -> tuple[float, float]:
    """Those of the least exact dtype that takes part."""
    types = [t.dtype for t in results if isinstance(t, tn.Tensor)]
    types += [v for v in case.args.values() if isinstance(v, tn.dtype)]
    names = {str(t).split(".")[-1] for t in types}
    known = [4 * np.array(tolerance(n)) for n in names if n in FLOATS]
    rtol, atol = np.max([(1e-7, 1e-9), *known], axis=0)
    return max(float(rtol), ROUGH.get(case.row["name"], 0)), float(atol)


def check(case: Case, want: Any) -> None:
    args = tensor_args(case)
    inputs = [] if case.row["inplace_only"] else roots(tn, args)
    results = flat(call(case.row, args))
    if case.row["name"] in TIES:
        results, want[0] = results[:1], want[0][:1]
    rtol, atol = tolerances(case, results)
    stored.same(results, want[0], rtol, atol, case.label())
    if want[1] is not None and case.row["grad"] != "missing":
        tensors = [r for r in results if isinstance(r, tn.Tensor)]
        stored.same(
            derivatives(tn, tensors, inputs, 2), want[1], 10 * rtol, 10 * atol, case.label()
        )


@pytest.mark.parametrize("row", sampled(), ids=lambda row: row["name"])
def test_same_as_torch(row: dict[str, Any]) -> None:
    cases = varied(row, dtype_of(row))
    answers = stored.of_torch(lambda torch: [theirs(torch, case) for case in cases], brief=True)
    apart = re.compile(LESS.get(row["name"], "$^"))
    for case, want in zip(cases, answers, strict=True):
        if want == "lacking" or apart.search(case.label()):
            continue
        if want != "refused":
            check(case, want)
        elif row["name"] not in MORE and not row["name"].startswith("fft_"):
            with pytest.raises((*ERRORS, MemoryError)):
                call(row, tensor_args(case))
