"""What an environment variable says and nobody understands is told, and changes nothing."""

from __future__ import annotations

import harness
import pytest

# Uses what reads the variables, and says what they came to.
USED = """
import warnings
warnings.simplefilter("always")
tn.manual_seed(0)
x = tn.rand(3)
y = tn.ones(3, device="cuda")
y = y.exp() + y
tn.cuda.synchronize()
kept = tn.cuda.memory_reserved() if y is not None else 0
del y
held = tn.cuda.memory_reserved() == kept
cudnn, policy = tn.backends.cudnn, tn._C._fallback_policy()
print(x.tolist(), held, policy, cudnn.enabled, cudnn.benchmark_limit)
print(tn.backends.cuda.matmul.allow_tf32)
"""


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TENON_CHECK", "yes"),
        ("TENON_RNG", "mt"),
        ("TENON_FALLBACK", "Allow"),
        ("TENON_LAUNCH_BLOCKING", "true"),
        ("TENON_MEMORY_CACHE", "off"),
        ("TENON_CUDA_TF32", "on"),
        ("TENON_CUDA_CONV_BYTES", "64M"),
        ("TENON_CUDNN", "no"),
        ("TENON_CUDNN_BENCHMARK_LIMIT", "99999999999999999999"),
    ],
)
def test_what_says_nothing(variable: str, text: str) -> None:
    plain = harness.run("-c", "import tenon as tn\n" + USED, TENON_FALLBACK="")
    odd = harness.run("-c", "import tenon as tn\n" + USED, **{"TENON_FALLBACK": "", variable: text})
    assert plain.returncode == odd.returncode == 0, odd.stderr
    assert odd.stdout == plain.stdout
    assert "ignored" not in plain.stderr
    assert f"{variable} is '{text}', no" in odd.stderr
