"""The packages around the core: what they say without a GPU and with one process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tenon


def test_import_brings_in_only_what_is_used():
    code = (
        "import sys, tenon\n"
        "heavy = ['tenon.nn', 'tenon.optim', 'tenon.utils', 'tenon.distributed', 'numpy']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout == "[]\n", out.stdout + out.stderr


def test_cuda_without_a_gpu():
    if tenon.cuda.is_available():
        pytest.skip("there is a GPU")
    assert tenon.cuda.device_count() == 0
    tenon.cuda.manual_seed_all(1)
    tenon.cuda.empty_cache()
    for ask in (tenon.cuda.synchronize, tenon.cuda.current_device, tenon.cuda.Stream):
        with pytest.raises(RuntimeError, match="no CUDA device is available"):
            ask()


def test_one_process_is_a_group(monkeypatch):
    dist = tenon.distributed
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.get_rank()
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        assert dist.get_rank() == 0 and dist.get_world_size() == 1
        t = tenon.ones(2)
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        dist.barrier()
        assert t.tolist() == [1.0, 1.0]
        net = tenon.nn.parallel.DistributedDataParallel(tenon.nn.Linear(2, 2))
        assert list(net.state_dict()) == ["module.weight", "module.bias"]
        with net.no_sync():
            net(tenon.ones(1, 2)).sum().backward()
        assert net.module.weight.grad is not None
    finally:
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="has not been initialized"):
        tenon.nn.parallel.DistributedDataParallel(tenon.nn.Linear(2, 2))


def test_settings_and_versions(monkeypatch):
    for name in ("TENON_CUDNN_BENCHMARK", "TENON_CUDA_TF32"):
        monkeypatch.setenv(name, "0")  # where settings live: restored afterwards
    assert tenon.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    cudnn = tenon.backends.cudnn
    cudnn.benchmark = True
    with cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        assert cudnn.benchmark is False
    assert cudnn.benchmark is True
    assert cudnn.is_available() == (cudnn.version() is not None)
    tenon.backends.cuda.matmul.allow_tf32 = True
    assert tenon.backends.cuda.matmul.allow_tf32
    assert not tenon.backends.mps.is_available()
    assert not tenon.backends.mkldnn.is_available()
    assert tenon.version.__version__ == tenon.__version__
    assert tenon.version.cuda is None
