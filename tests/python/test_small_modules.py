"""Small modules that programs know from PyTorch: futures, hub, benchmark, types."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest
import tenon as tn
from tenon import futures, hub
from tenon.utils import benchmark, dlpack
from tenon.utils.file_baton import FileBaton


def test_future_hands_over_values_and_errors() -> None:
    future: futures.Future[int] = futures.Future()
    doubled = future.then(lambda f: 2 * f.wait())
    failing = future.then(lambda f: 1 // 0)
    threading.Timer(0.01, future.set_result, [21]).start()
    assert doubled.wait() == 42 and future.done()
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    with pytest.raises(RuntimeError, match="once only"):
        future.set_result(1)
    with pytest.raises(RuntimeError, match="not done"):
        futures.Future().value()
    assert futures.wait_all([future, doubled]) == [21, 42]
    assert futures.collect_all([]).wait() == []


def test_one_process_at_a_time_has_a_baton(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    mine, other = FileBaton(path), FileBaton(path, 0.01, warn_after_seconds=0.02)
    assert mine.try_acquire() and not other.try_acquire() and Path(path).exists()
    threading.Timer(0.2, mine.release).start()
    with pytest.warns(UserWarning, match="Waited on lock file") as said:
        other.wait()
    assert len(said) == 1 and not Path(path).exists()
    assert other.try_acquire()
    other.release()
    FileBaton(path).wait()
    with pytest.raises(FileNotFoundError):
        other.release()


HUBCONF = '''
dependencies = ["math"]
from helper import SIZE

def linear(out=1):
    """A small layer."""
    import tenon
    return tenon.nn.Linear(SIZE, out)
'''


def test_hub_runs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "helper.py").write_text("SIZE = 3\n")
    assert "linear" in hub.list(str(tmp_path), source="local")
    assert hub.help(str(tmp_path), "linear", source="local") == "A small layer."
    model = hub.load(str(tmp_path), "linear", out=2, source="local")
    assert model.weight.shape == (2, 3)
    with pytest.raises(RuntimeError, match="Cannot find callable"):
        hub.load(str(tmp_path), "missing", source="local")
    with pytest.raises(FileNotFoundError):
        hub.load(str(tmp_path / "nowhere"), "linear", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(tmp_path), "linear", source="elsewhere")


def test_hub_downloads_by_url_and_compares_hashes(tmp_path: Path) -> None:
    tn.save({"w": tn.ones(2)}, tmp_path / "model.pth")
    digest = hashlib.sha256((tmp_path / "model.pth").read_bytes()).hexdigest()
    source = tmp_path / f"model-{digest[:8]}.pth"
    (tmp_path / "model.pth").rename(source)
    cache = tmp_path / "cache"
    state = hub.load_state_dict_from_url(
        source.as_uri(), model_dir=str(cache), progress=False, check_hash=True
    )
    assert state["w"].tolist() == [1, 1]
    wrong = tmp_path / "model-00000000.pth"
    source.rename(wrong)
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(
            wrong.as_uri(), model_dir=str(cache), progress=False, check_hash=True
        )
    assert [p.name for p in cache.iterdir()] == [source.name]
    with pytest.raises(RuntimeError, match="put the file at"):
        hub.load_state_dict_from_url((tmp_path / "gone.pth").as_uri(), model_dir=str(cache))


def test_timer_measures_and_compares() -> None:
    timer = benchmark.Timer("x + 1", globals={"x": tn.ones(4)}, label="add", description="a")
    once = timer.timeit(10)
    assert once.number_per_run == 10 and len(once.times) == 1 and 0 < once.median < 1
    several = timer.blocked_autorange(min_run_time=0.001)
    assert sum(several.raw_times) >= 0.001
    assert "add" in repr(several) and "IQR" in repr(several)
    table = str(benchmark.Compare([once, several]))
    assert "add" in table and "Times are in" in table
    spread = benchmark.Measurement(2, [2.0, 4.0, 6.0, 8.0])
    assert (spread.median, spread.mean, spread.iqr) == (2.5, 2.5, 1.5)


def test_dlpack_capsule_is_used_once() -> None:
    x = tn.arange(3)
    y = dlpack.from_dlpack(x)
    y[0] = 7
    assert x.tolist() == [7, 1, 2]
    assert "dltensor" in repr(dlpack.to_dlpack(x))
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        dlpack.to_dlpack([1.0])
