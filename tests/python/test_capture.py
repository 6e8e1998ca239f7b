"""Graphs on the CPU: a captured piece of a program, replayed, does what the piece itself does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import tenon as tn
from tenon import nn


def captured(piece: Callable[[], object]) -> tn.Graph:
    graph = tn.Graph()
    with tn.graph(graph):
        piece()
    return graph


def batches(count: int) -> list[tuple[tn.Tensor, tn.Tensor]]:
    generator = tn.Generator().manual_seed(5)
    xs = [tn.randn(32, 8, generator=generator) for _ in range(count)]
    return [(x, (x.sum(1) > 0).long()) for x in xs]


class Training:
    """A net, its optimizer and one step on a batch."""

    def __init__(self, optimizer: str, **more: object) -> None:
        tn.manual_seed(0)
        layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3)]
        self.net = nn.Sequential(*layers, nn.Linear(16, 2))
        options = {"lr": 0.1, "momentum": 0.9} if optimizer == "SGD" else {"lr": 0.01}
        self.optimizer = getattr(tn.optim, optimizer)(self.net.parameters(), **options, **more)

    def step(self, x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return loss

    def state(self) -> list[tn.Tensor]:
        return [t.detach().clone() for t in self.net.state_dict().values()]


@pytest.mark.parametrize(
    ("optimizer", "options", "replayed_options"),
    [
        ("SGD", {}, {}),
        ("Adam", {}, {}),
        ("Adam", {"amsgrad": True}, {"capturable": True}),
        ("AdamW", {}, {}),
        ("AdamW", {}, {"capturable": True}),
    ],
)
def test_a_replayed_training_step_is_the_step(
    optimizer: str, options: dict[str, bool], replayed_options: dict[str, bool]
) -> None:
    """Bit for bit over 20 steps: gradients, dropout, running statistics, optimizer state."""
    data = batches(23)
    eager = Training(optimizer, **options)
    losses = [eager.step(x, y).item() for x, y in data]
    replayed = Training(optimizer, **options, **replayed_options)
    for x, y in data[:3]:
        replayed.step(x, y)
    x, y = (t.clone() for t in data[0])
    graph = tn.Graph()
    with tn.graph(graph):
        loss = replayed.step(x, y)
    again = []
    for new_x, new_y in data[3:]:
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        again.append(loss.item())
    assert again == losses[3:]
    assert all(tn.equal(a, b) for a, b in zip(eager.state(), replayed.state()))


def test_a_capture_changes_nothing() -> None:
    x, filled = tn.arange(6.0), tn.zeros(4)
    generator = tn.Generator().manual_seed(3)
    before, state = x.clone(), generator.get_state()
    tn.manual_seed(9)
    first = tn.rand(3)
    tn.manual_seed(9)
    graph = captured(
        lambda: (x.add_(1), x[2:4].zero_(), filled.normal_(generator=generator), tn.rand(3))
    )
    assert tn.equal(x, before)
    assert tn.equal(filled, tn.zeros(4))
    assert tn.equal(generator.get_state(), state)
    assert tn.equal(tn.rand(3), first)
    graph.replay()
    assert tn.equal(x, tn.tensor([1.0, 2.0, 0.0, 0.0, 5.0, 6.0]))


def test_random_numbers_are_drawn_anew() -> None:
    def numbers(draw: Callable[[], tn.Tensor]) -> np.ndarray:
        return np.stack([draw().numpy().copy() for _ in range(3)])

    out = tn.empty(100)
    graph = captured(lambda: out.copy_(tn.randn(100) + tn.rand(100)))
    tn.manual_seed(1)
    eager = numbers(lambda: tn.randn(100) + tn.rand(100))
    tn.manual_seed(1)

    def replay() -> tn.Tensor:
        graph.replay()
        return out

    replayed = numbers(replay)
    assert np.array_equal(eager, replayed)
    assert len({row.tobytes() for row in replayed}) == 3


def test_layouts_conversions_and_lists() -> None:
    x = tn.zeros(4, 6)

    def piece() -> list[tn.Tensor]:
        a = x.t()[::2, 1:].double() * 2 + 1
        b = tn.cat([a, a.flip(0)], dim=1).half()
        values, order = tn.sort(x, dim=1, descending=True)
        where = tn.where(x > 0, x, x.long())
        return [a, b, values, order, where, x.sum(dim=(0, 1)), x.amax(1), x.cumsum(0)]

    results: list[tn.Tensor] = []
    graph = captured(lambda: results.extend(piece()))
    x.copy_(tn.randn(4, 6))
    graph.replay()
    for got, want in zip(results, piece()):
        assert got.dtype == want.dtype and tn.equal(got, want)


def test_memory_and_geometry_are_those_of_the_capture() -> None:
    """Whatever becomes of the tensors that were captured, a replay uses the old memory."""
    inputs = [tn.ones(1000), tn.ones(1000)]
    total = tn.zeros(())
    kept = inputs[1][:0].as_strided((1000,), (1,))
    graph = captured(lambda: total.copy_((inputs[0] * inputs[1]).sum()))
    inputs[0].data = tn.zeros(2)
    inputs.clear()
    for _ in range(50):
        tn.full((1000,), 7.0)  # would take the place of what was freed
    graph.replay()
    assert total.item() == 1000
    kept[0] = 5
    graph.replay()
    assert total.item() == 1004
    del graph
    assert total.item() == 1004


def test_written_memory_is_noticed_by_gradients() -> None:
    x, y = tn.ones(3, requires_grad=True), tn.ones(3)
    graph = captured(lambda: y.add_(1))
    z = (x * y).sum()
    graph.replay()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


FORBIDDEN: dict[str, Callable[[tn.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool((x > 0).all()),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "synchronize": lambda x: tn.Stream("cpu").synchronize(),
    "replay": lambda x: captured(lambda: x + 1),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_needs_values_is_an_error(what: str) -> None:
    x, graph = tn.ones(3), tn.Graph()
    with pytest.raises(RuntimeError, match="captur"), tn.graph(graph):
        FORBIDDEN[what](x)
    assert FORBIDDEN[what](x) is not False  # the thread is back to normal
    with pytest.raises(RuntimeError, match="nothing has been captured"):
        graph.replay()


def test_the_operator_is_named() -> None:
    with pytest.raises(RuntimeError, match="nonzero") as caught, tn.graph(tn.Graph()):
        tn.ones(3).nonzero()
    assert caught.value.op == "nonzero"


def test_a_hidden_failure_ends_the_capture() -> None:
    x, graph = tn.ones(3), tn.Graph()

    def piece() -> None:
        x.add_(1)
        try:
            x.tolist()
        except RuntimeError:
            pass

    with pytest.raises(RuntimeError, match="because of reading a value"), tn.graph(graph):
        piece()
    assert tn.equal(x, tn.ones(3))


def test_an_exception_leaves_the_graph_empty() -> None:
    x, graph = tn.ones(3), tn.Graph()
    with pytest.raises(ZeroDivisionError), tn.graph(graph):
        x.add_(1)
        1 / 0  # noqa: B018
    assert tn.equal(x, tn.ones(3)) and not tn.ones(1).sum().item() == 0
    with tn.graph(graph):
        x.add_(2)
    graph.replay()
    assert tn.equal(x, tn.full((3,), 3.0))


def test_states_of_a_graph() -> None:
    x, graph = tn.zeros(2), tn.Graph()
    with pytest.raises(RuntimeError, match="nothing has been captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="does not capture"):
        graph.capture_end()
    with tn.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="reset it first"), tn.graph(graph):
        pass
    graph.reset()
    with pytest.raises(RuntimeError, match="nothing has been captured"):
        graph.replay()
    with tn.graph(graph), pytest.raises(RuntimeError, match="already"):
        tn.Graph().capture_begin()
    graph.replay()  # of nothing
    assert tn.equal(x, tn.zeros(2))


def test_a_thread_that_ends_gives_its_capture_up() -> None:
    x, graph = tn.zeros(2), tn.Graph()

    def begin() -> None:
        graph.capture_begin()
        x.add_(1)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    # Python's thread is over a little before the system's, which gives the capture up.
    end = time.monotonic() + 20
    while x.tolist() != [0.0, 0.0] and time.monotonic() < end:
        time.sleep(0.01)
    assert x.tolist() == [0.0, 0.0]
    with tn.graph(graph):
        x.add_(2)
    graph.replay()
    assert x.tolist() == [2.0, 2.0]


def test_only_the_thread_that_captures_is_recorded() -> None:
    x, y, graph = tn.zeros(2), tn.zeros(2), tn.Graph()
    seen: list[object] = []

    def other() -> None:
        y.add_(1)
        seen.append(y.sum().item())
        for call in (graph.replay, graph.reset, graph.capture_end):
            try:
                call()
            except RuntimeError:
                seen.append(call.__name__)

    with tn.graph(graph):
        x.add_(1)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [2.0, "replay", "reset", "capture_end"]
    threads = [threading.Thread(target=lambda: [graph.replay() for _ in range(50)]) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.tolist() == [100.0, 100.0] and y.tolist() == [1.0, 1.0]
