"""Tools around programs in detail: timers with a clock of their own, repositories that are
downloaded once, where extensions are kept."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import hub
from tenon.utils import benchmark, cpp_extension


class Clock:
    """Time that goes on by what each run takes."""

    def __init__(self, *spans: float) -> None:
        self.now, self.spans, self.runs = 0.0, list(spans), 0

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += self.spans[min(self.runs, len(self.spans) - 1)]
        self.runs += 1


def timer(clock: Clock, **options: Any) -> benchmark.Timer:
    return benchmark.Timer(clock.work, timer=clock, **options)


def test_a_timer_runs_as_often_as_it_says() -> None:
    clock = Clock(0.5)
    found = timer(clock).timeit(300)
    assert found.raw_times == [150.0] and found.times == [0.5] and clock.runs == 3 + 300
    assert (found.number_per_run, found.label, found.num_threads) == (300, "work", 1)
    clock = Clock(0.5)
    assert timer(clock).timeit(20).raw_times == [10.0] and clock.runs == 2 + 20
    assert found.iqr == 0.0 and found.mean == found.median == 0.5


def test_blocks_make_the_clock_small_and_fill_the_time() -> None:
    clock, seen = Clock(1e-3), list[tuple[int, float]]()
    found = timer(clock).blocked_autorange(lambda n, t: seen.append((n, t)), min_run_time=20.0)
    # 1 and 10 runs take less than a thousandth of the time, 100 do not.
    assert found.number_per_run == 100 and len(found.raw_times) == 200
    assert [n for n, _ in seen] == [100] * 200 and [t for _, t in seen] == found.raw_times
    assert clock.runs == 1 + 10 + 100 + 200 * 100
    # The time is full where it is reached.
    assert timer(Clock(1.0)).blocked_autorange(min_run_time=3.0).raw_times == [1.0] * 3


def test_measurements_go_on_until_they_agree() -> None:
    clock, seen = Clock(1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0), list[int]()
    found = timer(clock).adaptive_autorange(
        0.1, min_run_time=2.0, max_run_time=50.0, callback=lambda n, t: seen.append(n)
    )
    # The quartiles of 1, 3, 1, 1 are 1 and 1.5, those of five 1 and 1.
    assert found.raw_times == [1.0, 3.0, 1.0, 1.0, 1.0] and seen == [1] * 5
    clock = Clock(1.0, 1.0, 3.0)
    short = timer(clock).adaptive_autorange(0.0, min_run_time=2.0, max_run_time=8.0)
    assert short.raw_times == [1.0, 3.0, 3.0, 3.0]
    clock = Clock(1.0)
    assert len(timer(clock).adaptive_autorange(min_run_time=6.0).raw_times) == 6


def test_a_timer_has_the_threads_that_it_says() -> None:
    before, seen = tn.get_num_threads(), list[int]()
    made = benchmark.Timer(lambda: seen.append(tn.get_num_threads()), num_threads=2)
    for call in (lambda: made.timeit(2), lambda: made.blocked_autorange(min_run_time=1e-5),
                 lambda: made.adaptive_autorange(max_run_time=1e-5)):  # fmt: skip
        seen.clear()
        assert call().num_threads == 2 and set(seen) == {2}
        assert tn.get_num_threads() == before
    assert benchmark.Timer("seen.append(torch.ones(2) is not None)", globals={"seen": seen})
    for wrong, text in (({"language": "c++"}, "only Python"), ({"global_setup": "a"}, "for C")):
        with pytest.raises(ValueError, match=text):
            benchmark.Timer("pass", **wrong)


def test_what_a_measurement_says() -> None:
    many = benchmark.Measurement(
        2, [2e-3, 4e-3, 6e-3, 8e-3, 1e-2], "add", "large", "mine", num_threads=4
    )
    assert many.title == "add: large" and many.iqr == pytest.approx(2e-3)
    assert repr(many).splitlines()[1:] == [
        "add: large", "mine", "  Median: 3.00 ms", "  IQR:    2.00 ms",
        "  5 measurements, 2 runs per measurement, 4 threads",
    ]  # fmt: skip
    one = benchmark.Measurement(1, [5e-7], "add")
    assert repr(one).splitlines()[1:] == [
        "add", "  Median: 500.00 ns", "  IQR:    0.00 ns",
        "  1 measurements, 1 runs per measurement, 1 thread",
    ]  # fmt: skip
    seconds = [benchmark._unit(t)[1] for t in (2.0, 1.0, 0.5, 1e-3, 5e-4, 1e-6, 5e-7, 1e-12)]
    assert seconds == ["s", "s", "ms", "ms", "us", "us", "ns", "ns"]


def test_a_table_has_a_row_for_each_kind_and_number_of_threads() -> None:
    def one(time: float, *about: Any, threads: int = 1) -> benchmark.Measurement:
        return benchmark.Measurement(1, [time], *about, num_threads=threads)

    table = benchmark.Compare([one(2e-6, "add", "small", "mine")])
    assert str(benchmark.Compare([])) == "(no measurements)"
    table.extend_results([
        one(3e-6, "add", "small", "theirs"), one(4e-6, "add", "large", "theirs"),
        one(5e-6, "add", "small", "mine", threads=2), one(1e-3, "mul"),
    ])  # fmt: skip
    table.trim_significant_figures()
    table.colorize()
    assert str(table).splitlines() == [
        "add              | mine | theirs",
        "1 threads: small | 2.00 |   3.00",
        "1 threads: large |      |   4.00",
        "2 threads: small | 5.00 |       ",
        "",
        "mul            |        ",
        "1 threads: mul | 1000.00",
        "",
        "Times are in us.",
    ]


# ---- Repositories --------------------------------------------------------------------------------


def packed(text: str) -> bytes:
    """A repository as GitHub packs it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("owner-name-abc/hubconf.py", text)
    return file.getvalue()


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What would be downloaded, and what was asked for."""
    state: dict[str, Any] = {"asked": [], "text": "def one():\n    return 1\n"}

    def download(url: str, target: str) -> None:
        state["asked"].append(url)
        Path(target).write_bytes(packed(state["text"]))

    monkeypatch.setattr(hub, "download_url_to_file", download)
    monkeypatch.setattr(hub, "_directory", None)
    hub.set_dir(tmp_path / "hub")
    return state


def test_a_repository_is_downloaded_once(
    github: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = list(sys.path)
    assert hub.load("owner/name", "one") == 1 and hub.list("owner/name") == ["one"]
    assert github["asked"] == ["https://github.com/owner/name/zipball/main"]
    assert "Using cache found in" in capsys.readouterr().err
    assert hub.load("owner/name", "one", verbose=False) == 1 and not capsys.readouterr().err
    github["text"] = 'def one():\n    """Two."""\n    return 2\n_two = one\n'
    assert hub.load("owner/name", "one") == 1
    assert hub.load("owner/name", "one", force_reload=True) == 2
    assert hub.help("owner/name", "one") == "Two." and len(github["asked"]) == 2
    assert hub.list("owner/name") == ["one"] and hub.list("owner/name", True) == ["one"]
    assert hub.load("owner/name:a/b", "one") == 2
    assert github["asked"][2:] == [
        "https://github.com/owner/name/zipball/main",
        "https://github.com/owner/name/zipball/a/b",
    ]
    names = sorted(p.name for p in (tmp_path / "hub").iterdir())
    assert names == ["owner_name_a_b", "owner_name_main"] and sys.path == path
    with pytest.raises(ValueError, match="expected 'owner/name"):
        hub.load("owner", "one")
    github["text"] = "dependencies = ['nothing_of_the_kind', 'sys']\ndef one(): pass\n"
    with pytest.raises(RuntimeError, match="Missing dependencies: nothing_of_the_kind$"):
        hub.load("owner/other", "one")


def test_the_folder_of_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub, "_directory", None)
    monkeypatch.delenv("TORCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "torch" / "hub")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert hub.get_dir() == str(tmp_path / "home" / "hub")
    source = tmp_path / "w.pt"
    tn.save({"a": 1}, source)
    for name in (None, "other.pt"):
        found = hub.load_state_dict_from_url(source.as_uri(), progress=False, file_name=name)
        assert found == {"a": 1}
    kept = tmp_path / "home" / "hub" / "checkpoints"
    assert sorted(p.name for p in kept.iterdir()) == ["other.pt", "w.pt"]
    source.unlink()
    assert hub.load_state_dict_from_url(source.as_uri()) == {"a": 1}
    hub.set_dir("~/there")
    assert hub.get_dir() == str(Path("~/there").expanduser())


# ---- Extensions ----------------------------------------------------------------------------------


def test_where_extensions_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cpp_extension.get_default_build_root() == str(tmp_path / "tenon" / "extensions")
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    made = Path(cpp_extension._get_build_directory("one", False))
    assert made == tmp_path / "tenon" / "extensions" / "one" and made.stat().st_mode & 0o77 == 0
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "here"))
    assert cpp_extension._get_build_directory("two", False) == str(tmp_path / "here" / "two")
    assert cpp_extension._get_build_directory("two", True) == str(tmp_path / "here" / "two")
    assert cpp_extension.library_paths() == []
    assert [Path(p).is_dir() for p in cpp_extension.include_paths()] == [True]


def program(folder: Path, name: str) -> str:
    path = folder / "bin" / name
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path.parent)


def test_programs_that_extensions_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not cpp_extension.is_ninja_available() and cpp_extension._cuda_home() is None
    with pytest.raises(RuntimeError, match="Ninja is required to load C"):
        cpp_extension.verify_ninja_availability()
    monkeypatch.setenv("PATH", program(tmp_path / "ninja", "ninja"))
    assert cpp_extension.is_ninja_available()
    cpp_extension.verify_ninja_availability()
    monkeypatch.setenv("PATH", program(tmp_path / "cuda", "nvcc"))
    assert cpp_extension._cuda_home() == str(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_PATH", "/second")
    assert cpp_extension._cuda_home() == "/second"
    monkeypatch.setenv("CUDA_HOME", "/first")
    assert cpp_extension._cuda_home() == "/first"
