"""What ./dev test --cuda adds on a machine with a GPU, tried on the host harness: the program that
calls every family of kernels, and which tests are skipped there."""

from __future__ import annotations

import families
import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_every_family_of_kernels_is_called() -> None:
    done = harness.run("tests/cuda_host/families.py", TENON_FALLBACK="error")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert f"{len(families.kernels())} passed, 0 failed" in done.stdout


def test_our_own_kernels_are_called_alone() -> None:
    """Where cuDNN fails whenever it is asked."""
    broken = {"TENON_FALLBACK": "error", "TENON_CUDNN_HOST": "broken"}
    assert harness.run("tests/cuda_host/families.py", **broken).returncode != 0
    done = harness.run("tests/cuda_host/families.py", "--own", **broken)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.parametrize(
    ("devices", "text", "env", "words"),
    [
        (1, "tn.ones(2)", {"TENON_CUDA_HOST_MEMORY": "20000"}, "about the host harness"),
        (1, "ctypes.CDLL('libcudnn.so.9').cudnnHostCount", {}, "about the host harness"),
        (2, "tn.ones(2, device='cuda:1')", {}, "takes two devices"),
    ],
)
def test_what_a_gpu_cannot_run_is_skipped_with_its_name(
    monkeypatch: pytest.MonkeyPatch, devices: int, text: str, env: dict[str, str], words: str
) -> None:
    monkeypatch.setattr(harness, "device", lambda: ("Some GPU", 1))
    harness.skip_on_gpu(("-c", "tn.ones(2, device='cuda')"), harness.FOLDER, {})
    delay = {"TENON_CUDA_HOST_DELAY": "9"}  # only makes the harness slower
    harness.skip_on_gpu(("-c", "tn.ones(2)"), harness.FOLDER, delay)
    with pytest.raises(pytest.skip.Exception, match=f"not on Some GPU: {words}"):
        harness.skip_on_gpu(("-c", text), harness.FOLDER, env, devices)
