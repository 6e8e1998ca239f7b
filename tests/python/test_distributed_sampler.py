"""DistributedSampler: what each of n processes visits, where it goes on after a stop, and with how
many. The promise is one of sets: nothing is lost, nothing comes twice unless it was asked for."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
import tenon as tn
from tenon.utils.data import DataLoader, DistributedSampler

SIZES = (0, 1, 2, 3, 4, 5, 7, 10, 23)
WORLDS = (1, 2, 3, 4, 5)


def samplers(size: int, n: int, **options: object) -> list[DistributedSampler]:
    return [DistributedSampler(range(size), n, rank, **options) for rank in range(n)]


def visited(parts: list[list[int]]) -> Counter[int]:
    return Counter(i for part in parts for i in part)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_visited(size: int, n: int, shuffle: bool) -> None:
    for uneven in ("pad", "drop", "exact"):
        made = samplers(size, n, shuffle=shuffle, uneven=uneven)
        parts = [list(s) for s in made]
        assert [len(s) for s in made] == [len(p) for p in parts]
        assert {s.total_size for s in made} == {sum(len(p) for p in parts)}
        counts = visited(parts)
        if uneven == "exact":
            assert counts == Counter(range(size))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            continue
        assert len({len(p) for p in parts}) == 1
        if uneven == "drop":
            assert max(counts.values(), default=1) == 1 and len(counts) == size // n * n
        else:
            assert set(counts) == set(range(size)) and sum(counts.values()) == -(-size // n) * n


def test_it_divides_as_pytorch_does() -> None:
    # torch 2.13: list(DistributedSampler(range(10), 4, r, shuffle=False)), and with drop_last=True
    assert [list(s) for s in samplers(10, 4, shuffle=False)] == [
        [0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1],
    ]  # fmt: skip
    assert [list(s) for s in samplers(10, 4, shuffle=False, drop_last=True)] == [
        [0, 4], [1, 5], [2, 6], [3, 7],
    ]  # fmt: skip
    assert [list(s) for s in samplers(2, 5, shuffle=False)] == [[0], [1], [0], [1], [0]]
    shuffled = samplers(10, 4, seed=3)
    first = [list(s) for s in shuffled]
    assert [list(s) for s in shuffled] == first != [list(s) for s in samplers(10, 4, seed=4)]
    for s in shuffled:
        s.set_epoch(1)
    assert [list(s) for s in shuffled] != first


@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("size", [7, 23])
def test_it_goes_on_in_the_middle_of_an_epoch(size: int, n: int, uneven: str) -> None:
    whole = samplers(size, n, uneven=uneven)
    for s in whole:
        s.set_epoch(4)
    want = [list(s) for s in whole]
    for stop in range(min(map(len, want)) + 1):
        parts, states = [], []
        for rank in range(n):
            s = DistributedSampler(range(size), n, rank, uneven=uneven)
            s.set_epoch(4)
            parts.append(list(islice(s, stop)))
            states.append(s.state_dict())
        assert all(state == states[0] for state in states)
        for rank in range(n):
            s = DistributedSampler(range(size), n, rank, uneven=uneven)
            s.load_state_dict(states[0])
            s.set_epoch(4)  # as the loops of programs do
            assert len(s) == len(want[rank]) - stop
            parts[rank] += list(s)
            assert parts[rank] == want[rank]
            assert list(s) == want[rank]  # the next pass is a whole one
            s.load_state_dict(states[0])
            s.set_epoch(5)
            assert len(s) == len(want[rank])


@pytest.mark.parametrize("then", [1, 2, 3, 5])
def test_it_goes_on_with_another_number_of_processes(then: int) -> None:
    size, stop = 23, 3
    before = [list(islice(s, stop)) for s in samplers(size, 4, uneven="exact")]
    state = DistributedSampler(range(size), 4, 0, uneven="exact").state_dict(visited=stop)
    assert state["offset"] == 12
    after = samplers(size, then, uneven="exact")
    for s in after:
        s.load_state_dict(state)
    rest = [list(s) for s in after]
    assert visited(before) + visited(rest) == Counter(range(size))
    again = samplers(size, then)
    for s in again:
        s.load_state_dict(state)
    padded = [list(s) for s in again]
    assert len({len(p) for p in padded}) == 1
    assert set(visited(before)) | set(visited(padded)) == set(range(size))


def test_a_pass_that_was_left_starts_again() -> None:
    s = DistributedSampler(range(10), 2, 0, shuffle=False)
    assert list(islice(s, 2)) == [0, 2]
    assert next(iter(s)) == 0 and s.state_dict()["offset"] == 2
    assert list(s) == [0, 2, 4, 6, 8]


def test_a_loader_goes_on() -> None:
    s = DistributedSampler(range(20), 2, 1, shuffle=False)
    batches = iter(DataLoader(range(20), batch_size=2, sampler=s))
    assert [next(batches).tolist() for _ in range(2)] == [[1, 3], [5, 7]]
    state = s.state_dict(visited=4)
    other = DistributedSampler(range(20), 2, 1, shuffle=False)
    other.load_state_dict(state)
    rest = [b.tolist() for b in DataLoader(range(20), batch_size=2, sampler=other)]
    assert rest == [[9, 11], [13, 15], [17, 19]]


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="interval"):
        DistributedSampler(range(3), 2, 2)
    with pytest.raises(ValueError, match="pad, drop, exact"):
        DistributedSampler(range(3), 2, 0, uneven="more")
    with pytest.raises(ValueError, match="contradict"):
        DistributedSampler(range(3), 2, 0, drop_last=True, uneven="exact")
    s = DistributedSampler(range(3), 2, 0)
    for other in (
        DistributedSampler(range(4), 2, 0), DistributedSampler(range(3), 2, 0, seed=1),
        DistributedSampler(range(3), 2, 0, shuffle=False),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="order is another"):
            s.load_state_dict(other.state_dict())


def test_the_group_says_how_many_and_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tn.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(tn.distributed, "get_rank", lambda: 1)
    sampler = DistributedSampler(range(6), shuffle=False)
    assert (sampler.num_replicas, sampler.rank, list(sampler)) == (3, 1, [1, 4])
    assert list(DistributedSampler(range(6), rank=2, shuffle=False)) == [2, 5]
    assert list(DistributedSampler(range(6), 2, shuffle=False)) == [1, 3, 5]
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=rf"Invalid rank {wrong}.*\[0, 2\]"):
            DistributedSampler(range(6), rank=wrong)


def test_many_more_processes_than_samples() -> None:
    """The order of all of them is not made: it would take all memory."""
    made = DistributedSampler(range(3), 2**40, 2**39 + 1, shuffle=False)
    assert len(made) == 1 and list(made) == [(2**39 + 1) % 3]
