"""The profiler: what is in a recording, how long it took, and what is written of it."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from pathlib import Path

import pytest
import tenon as tn
from tenon.profiler import EventList, FunctionEventAvg, profile, record_function


def names(p: profile) -> list[str]:
    return [event.name for event in p.events()]


def test_operators_spans_and_parts() -> None:
    x = tn.randn(4, 4, requires_grad=True)
    with profile() as p, record_function("forward"):
        y = nn_like(x)
    with profile() as backward:
        y.backward()
    assert names(p)[0] == "forward" and {"aten::mm", "aten::relu", "aten::sum"} <= set(names(p))
    assert names(p).index("aten::mm") < names(p).index("aten::relu") < names(p).index("aten::sum")
    assert "aten::mm" in names(backward) and "forward" not in names(backward)
    count = len(p.events())
    nn_like(x)
    assert len(p.events()) == count  # nothing is recorded afterwards


def nn_like(x: tn.Tensor) -> tn.Tensor:
    return (x @ x).relu().sum()


def test_composites_contain_their_parts() -> None:
    x = tn.randn(8)
    with profile() as p:
        tn.std(x)
    events = p.events()
    outer = next(e for e in events if e.name == "aten::std")
    inner = [e for e in events if e is not outer and outer.start <= e.start <= e.end <= outer.end]
    assert inner
    assert 0 <= outer.self_cpu_time_total < outer.cpu_time_total


def test_times_are_those_of_the_clock() -> None:
    with profile() as p:
        with record_function("outer"):
            time.sleep(0.02)
            with record_function("inner"):
                time.sleep(0.03)
        with record_function("inner"):
            time.sleep(0.01)
    rows = {row.key: row for row in p.key_averages()}
    assert rows["outer"].count == 1 and rows["inner"].count == 2
    assert 50e3 <= rows["outer"].cpu_time_total
    assert 40e3 <= rows["inner"].cpu_time_total
    assert rows["inner"].cpu_time == rows["inner"].cpu_time_total / 2
    nested = rows["outer"].cpu_time_total - rows["outer"].self_cpu_time_total
    assert 30e3 <= nested <= rows["inner"].cpu_time_total
    total = p.key_averages().total_average()
    assert total.count == 3 and 60e3 <= total.cpu_time_total


def test_the_table() -> None:
    with profile() as p:
        for _ in range(3):
            tn.ones(3).exp()
    averages = p.key_averages()
    text = averages.table(sort_by="count", row_limit=1)
    assert "# of Calls" in text and "Self CPU time total" in text
    row = text.splitlines()[3].split()
    assert row[-1] == str(max(a.count for a in averages))
    assert "exp" in str(averages)
    with pytest.raises(ValueError, match="no column 'speed'"):
        averages.table(sort_by="speed")


def test_a_trace(tmp_path: Path) -> None:
    with profile() as p:
        with record_function('a "name"'):
            tn.ones(3) + 1
        p.step()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    by_name = {event["name"]: event for event in events}
    span, add = by_name['a "name"'], by_name["aten::add"]
    assert span["ph"] == add["ph"] == "X" and by_name["ProfilerStep#0"]["ph"] == "i"
    assert span["ts"] <= add["ts"] and add["ts"] + add["dur"] <= span["ts"] + span["dur"]
    assert span["tid"] == threading.get_native_id()


def test_threads() -> None:
    def work() -> None:
        tn.ones(2).cos()
        with record_function("elsewhere"):
            tn.ones(2).sin()
        tn.ones(2).tan()

    with profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        tn.ones(2).exp()
    mine = {e.name for e in p.events() if e.thread == threading.get_native_id()}
    other = {e.name for e in p.events() if e.thread != threading.get_native_id()}
    assert "aten::exp" in mine and {"elsewhere", "aten::sin", "aten::tan"} <= other
    assert "aten::cos" not in other


def test_decorator_and_the_older_name() -> None:
    @tn.autograd.profiler.record_function("decorated")
    def work() -> tn.Tensor:
        return tn.ones(2) * 2

    with tn.autograd.profiler.profile() as p:
        work()
        work()
    assert names(p).count("decorated") == 2


@pytest.mark.parametrize("enter", ["_record_function_enter", "_record_function_enter_new"])
def test_spans_by_operators(enter: str) -> None:
    """What a graph calls, which has no `with`."""
    graph = tn.fx.Graph()
    x = graph.placeholder("x")
    span = graph.call_function(getattr(tn.ops.profiler, enter), ("outer", None))
    y = graph.call_function(tn.neg, (x,))
    tn.ops.profiler._record_function_exit(tn.fx.Proxy(span))
    graph.output(graph.call_function(tn.exp, (y,)))
    module = tn.fx.GraphModule(tn.nn.Module(), graph)
    with profile() as p:
        module(tn.ones(3))
    times = {e.name: (e.start, e.start + e.cpu_time_total) for e in p.events()}
    assert times["outer"][0] <= times["aten::neg"][0] <= times["aten::neg"][1] <= times["outer"][1]
    assert times["outer"][1] <= times["aten::exp"][0]
    with pytest.raises(RuntimeError, match="expects a span, not Tensor"):
        tn.ops.profiler._record_function_exit(tn.ones(1))


def test_mistakes() -> None:
    with profile(), pytest.raises(RuntimeError, match="running already"):
        profile().start()
    with pytest.raises(RuntimeError, match="no recording"):
        profile().stop()
    with pytest.raises(RuntimeError, match="entered no span"):
        record_function("x").__exit__(None, None, None)
    with pytest.warns(UserWarning, match="record_shapes, with_stack: not measured"):
        profile(record_shapes=True, with_stack=True)
    with pytest.raises(RuntimeError, match="shape"), profile() as p:
        tn.ones(2, 3) @ tn.ones(2, 3)
    assert "aten::matmul" in names(p) or "aten::mm" in names(p)


def test_layers_and_graphs_go_on() -> None:
    x, graph = tn.zeros(2), tn.Graph()
    with profile() as p:
        with tn.graph(graph):
            x += 1
        graph.replay()
    assert x.tolist() == [1.0, 1.0] and "aten::add" in names(p)


def test_schedule_records_rounds(tmp_path: Path) -> None:
    plan = tn.profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    assert "".join(str(plan(step).value) for step in range(11)) == "00123012300"
    first = tn.profiler.schedule(wait=2, warmup=0, active=1, skip_first_wait=1)
    assert [first(step).value for step in range(4)] == [3, 0, 0, 3]
    with pytest.raises(AssertionError, match="active=0"):
        tn.profiler.schedule(wait=0, warmup=1, active=0)
    found: list[tuple[int, list[str]]] = []
    with profile(schedule=plan, on_trace_ready=lambda p: found.append((p.step_num, names(p)))) as p:
        for step in range(11):
            with record_function(f"step {step}"):
                tn.ones(2).exp()
            p.step()
    steps = [(at, [n for n in seen if n.startswith("step")]) for at, seen in found]
    assert steps == [(5, ["step 3", "step 4"]), (9, ["step 7", "step 8"])]
    tn.profiler.tensorboard_trace_handler(str(tmp_path), "me", use_gzip=True)(p)
    (trace,) = tmp_path.iterdir()
    p.add_metadata("kind", "test")
    p.export_chrome_trace(tmp_path / "plain.json")
    text = json.loads((tmp_path / "plain.json").read_text())
    assert trace.name.endswith(".pt.trace.json.gz") and text["kind"] == "test"
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] == text["traceEvents"]


def test_columns_that_are_not_measured() -> None:
    with tn.autograd.profiler.profile(use_cuda=False) as p:
        tn.ones(2).exp()
    assert "exp" in p.key_averages().table(sort_by="cuda_time_total", row_limit=5)
    assert "exp" in p.table(sort_by="self_cpu_memory_usage") and p.self_cpu_time_total > 0
    with pytest.raises(ValueError, match="no column 'speed'"):
        p.table(sort_by="speed")
    with tn.autograd.profiler.profile(enabled=False) as off:
        tn.ones(2).exp()
    assert off.function_events == []


def test_a_composite_under_autocast_does_not_end_the_recording() -> None:
    x = tn.randn(2, 8, requires_grad=True)
    with profile() as p, tn.autocast("cpu", dtype=tn.bfloat16):
        first, second = tn.nn.functional.linear(x, tn.ones(8, 8)).split(4, dim=1)
        (first + second).sum().backward()
    assert {"split_with_sizes", "add", "sum", "mm"} <= {
        n.removeprefix("aten::") for n in names(p)
    }, names(p)


def averaged() -> EventList:
    """A span of 2.5 s around two calls of 600 ms, and one of 750 us outside."""
    rows = {"outer span": (1, 2.5e6, 1.3e6), "inner": (2, 1.2e6, 1.2e6), "last": (1, 750.0, 750.0)}
    return EventList(FunctionEventAvg(name, *row) for name, row in rows.items())


def test_a_table_of_known_times() -> None:
    """Every cell: shares of the sum of own times, units by size, names cut, rows left out."""
    title, *rows = [re.split(r"  +", line.strip()) for line in averaged().table().splitlines()
                    if not line.startswith("-")]  # fmt: skip
    assert title == ["Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls"]
    assert rows == [
        ["outer span", "51.98%", "1.300s", "2.500s", "2.500s", "1"],
        ["inner", "47.99%", "1.200s", "1.200s", "600.000ms", "2"],
        ["last", "0.03%", "750.000us", "750.000us", "750.000us", "1"],
        ["Self CPU time total: 2.501s"],
    ]
    cut = averaged().table(max_name_column_width=7, row_limit=1, header="My run").splitlines()
    assert cut[0] == "My run" and cut[4].split()[0] == "oute..." and len(cut) == 7
    assert "outer span" in averaged().table(max_name_column_width=10)
    assert "outer span" in averaged().table(max_name_column_width=3)
    assert len(averaged().table(row_limit=-1).splitlines()) == len(rows) + 4
    by = averaged().table(sort_by="cpu_time_total").splitlines()
    assert [line.split()[0] for line in by[3:6]] == ["outer", "inner", "last"]
    by = averaged().table(sort_by="count").splitlines()
    assert [line.split()[0] for line in by[3:6]] == ["inner", "outer", "last"]
    assert "0.00%" in EventList([FunctionEventAvg("nothing", 1)]).table()
    total = averaged().total_average()
    assert (total.key, total.count, total.cpu_time_total) == ("Total", 4, 2500750.0)
    assert total.self_cpu_time_total == averaged().self_cpu_time_total == 2500750.0
    assert FunctionEventAvg("none").cpu_time == 0.0


def test_units_change_at_a_thousand() -> None:
    times = (999.0, 1e3, 999999.0, 1e6)
    text = EventList(FunctionEventAvg(f"n{i}", 1, t, t) for i, t in enumerate(times)).table()
    cells = [line.split()[2] for line in text.splitlines()[3:7]]
    assert cells == ["999.000us", "1.000ms", "999.999ms", "1.000s"]


def test_metadata_of_a_trace(tmp_path: Path) -> None:
    """Texts as texts, JSON as what it says."""
    with profile() as p:
        tn.ones(2).exp()
    p.add_metadata("note", "[1]")
    p.add_metadata_json("sizes", '[1, {"rows": 2}]')
    p.export_chrome_trace(tmp_path / "trace.json")
    told = json.loads((tmp_path / "trace.json").read_text())
    assert told["note"] == "[1]" and told["sizes"] == [1, {"rows": 2}]
    assert told["displayTimeUnit"] == "ms"
    with pytest.raises(ValueError, match="Expecting value"):
        p.add_metadata_json("sizes", "two")
    tn.profiler.tensorboard_trace_handler(str(tmp_path / "runs"), "me")(p)
    (trace,) = (tmp_path / "runs").iterdir()
    assert trace.name.startswith("me.") and trace.name.endswith(".pt.trace.json")
    assert json.loads(trace.read_text())["traceEvents"] == told["traceEvents"]


def test_what_can_be_measured() -> None:
    """The CPU's clock; numbers of activities, and what is not measured, are PyTorch's zeros."""
    assert tn.profiler.kineto_available()
    assert tn.profiler.supported_activities() == {tn.profiler.ProfilerActivity.CPU}
    numbers = {a.name: a.value for a in tn.profiler.ProfilerActivity}
    want = {"CPU": 0, "XPU": 1, "CUDA": 2, "HPU": 3, "MTIA": 4, "PrivateUse1": 5}
    assert numbers == want  # PyTorch 2.13's
    with profile() as p:
        tn.ones(2).exp()
    for row in (p.events()[0], p.key_averages()[0]):
        assert row.device_time_total == row.self_device_time_total == row.cpu_memory_usage == 0
        assert row.input_shapes == row.stack == [] and row.self_cpu_memory_usage == 0
    with pytest.raises(AssertionError, match="Step must be non-negative. Got -1"):
        tn.profiler.schedule(wait=0, warmup=0, active=1)(-1)


@pytest.mark.parametrize(
    ("warmup", "active", "repeat", "gathered", "last"),
    [(0, 1, 1, 1, 1), (0, 5, 10, 50, 5), (10, 10, 4, 40, 10), (1, 5, 0, 83, 3)],
)
def test_events_of_all_rounds_are_kept_where_asked(
    warmup: int, active: int, repeat: int, gathered: int, last: int
) -> None:
    plan = tn.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=repeat)
    x = tn.ones(1)
    for keeps, want in ((True, gathered), (False, last)):
        with profile(schedule=plan, acc_events=keeps) as prof:
            for _ in range(100):
                x.neg()
                prof.step()
        counts = {average.key: average.count for average in prof.key_averages()}
        assert counts["aten::neg"] == want


def test_times_of_one_call_units_and_names_given_by_programs() -> None:
    with profile() as prof:
        with record_function("mine"):
            tn.ones(2).neg()
    for event in prof.events():
        assert event.cpu_time == event.cpu_time_total
        assert event.is_user_annotation == (event.name == "mine")
    averages = prof.key_averages()
    assert {a.key for a in averages if a.is_user_annotation} == {"mine"}
    for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        text = averages.table(time_unit=unit)
        assert not re.search(rf"\.\d{{3}}(?!{unit}\b)[a-z]+", text)
        assert all(f"{a.cpu_time_total / size:.3f}{unit}" in text for a in averages)
    with pytest.raises(ValueError, match="time_unit must be one of"):
        averages.table(time_unit="ns")
