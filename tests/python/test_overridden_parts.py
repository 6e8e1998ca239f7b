"""Methods of classes that programs give another body in a class of theirs: it is the one that runs,
as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import stored
import tenon as tn


def lists(T: Any) -> Any:
    class Round(T.nn.ModuleList):
        def _get_abs_string_index(self, idx: Any) -> str:
            return super()._get_abs_string_index(idx % len(self))

    class Values(T.nn.ParameterList):
        def _get_abs_string_index(self, idx: Any) -> str:
            return super()._get_abs_string_index(idx % len(self))

    modules = Round([T.nn.Linear(i + 1, 1) for i in range(3)])
    modules[4] = T.nn.Linear(9, 1)
    values = Values([T.ones(i + 1) for i in range(3)])
    values[5] = T.ones(7)
    found = [modules[i].in_features for i in (-1, 0, 4, 5)]
    del modules[4]
    return [found, [m.in_features for m in modules], [values[i].numel() for i in (-1, 3, 5)]]


def embeddings(T: Any) -> Any:
    class Ones(T.nn.Embedding):
        def _fill_padding_idx_with_zero(self) -> None:
            with T.no_grad():
                self.weight[0] = 1

    class Bag(T.nn.EmbeddingBag):
        def reset_parameters(self) -> None:
            T.nn.init.ones_(self.weight)
            self._fill_padding_idx_with_zero()

    return [Ones(3, 2, padding_idx=1).weight[0].tolist(), Bag(3, 2, padding_idx=1).weight.tolist()]


def transformer(T: Any) -> Any:
    class Ones(T.nn.Transformer):
        def _reset_parameters(self) -> None:
            for p in self.parameters():
                T.nn.init.ones_(p)

    return sorted({float(p.min()) for p in Ones(4, 2, 1, 1, 8).parameters()})


def plateau(T: Any) -> Any:
    class Even(T.optim.lr_scheduler.ReduceLROnPlateau):
        def _is_better(self, a: float, best: float) -> bool:
            return a % 2 == 0

    o = T.optim.SGD([T.nn.Parameter(T.ones(1))], lr=1.0)
    schedule = Even(o, patience=9)
    for measure in (2.0, 3.0, 5.0):
        schedule.step(measure)
    return [schedule.num_bad_epochs, schedule.best]


def one_cycle(T: Any) -> Any:
    class Steps(T.optim.lr_scheduler.OneCycleLR):
        def _anneal_func(self, start: float, end: float, pct: float) -> float:
            return start if pct < 0.5 else end

    o = T.optim.SGD([T.nn.Parameter(T.ones(1))], lr=1.0, momentum=0.9)
    schedule = Steps(o, max_lr=1.0, total_steps=6)
    rates = []
    for _ in range(5):
        o.step()
        schedule.step()
        rates.append(o.param_groups[0]["lr"])
    plain = T.optim.lr_scheduler.OneCycleLR
    return [rates, [f(1.0, 3.0, 0.25) for f in (plain._annealing_cos, plain._annealing_linear)]]


def log_probabilities(T: Any) -> Any:
    class Flat(T.nn.AdaptiveLogSoftmaxWithLoss):
        def _get_full_log_prob(self, input: Any, head_output: Any) -> Any:
            return head_output.new_zeros(len(input), self.n_classes) - 2

    layer = Flat(4, 10, [2, 5])
    return layer.log_prob(T.ones(3, 4)).tolist()


def loader(T: Any) -> Any:
    class Twice(T.utils.data.DataLoader):
        def _get_iterator(self) -> Any:
            return iter([*super()._get_iterator(), *super()._get_iterator()])

    return [batch.tolist() for batch in Twice([1, 2, 3], batch_size=2)]


CASES: list[Callable[[Any], Any]] = [
    lists, embeddings, transformer, plateau, one_cycle, log_probabilities, loader,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_own_bodies_run(case: Callable[[Any], Any]) -> None:
    stored.same(case(tn), stored.of_torch(case), 1e-12)
