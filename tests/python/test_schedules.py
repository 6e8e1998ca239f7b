"""Schedules of learning rates and averages of models against PyTorch."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import stored
import tenon

SCHEDULES = [
    "LambdaLR(o, lambda e: 0.95 ** e)",
    "LambdaLR(o, [lambda e: 0.9 ** e, lambda e: 1 / (1 + e)])",
    "MultiplicativeLR(o, lambda e: 0.95)",
    "StepLR(o, 3, 0.5)",
    "MultiStepLR(o, [2, 4, 4, 9], 0.5)",
    "ConstantLR(o, 0.5, 4)",
    "LinearLR(o, 0.2, 0.9, 6)",
    "ExponentialLR(o, 0.9)",
    "PolynomialLR(o, 8, 2.0)",
    "CosineAnnealingLR(o, 5, 0.01)",
    "CosineAnnealingWarmRestarts(o, 3, 2, 0.01)",
    "OneCycleLR(o, 0.5, 20)",
    "OneCycleLR(o, 0.5, epochs=4, steps_per_epoch=5, three_phase=True, anneal_strategy='linear')",
    "OneCycleLR(o, [0.5, 0.2], 20, base_momentum=[0.8, 0.7], max_momentum=[0.95, 0.9])",
    "OneCycleLR(o, 0.5, 20, cycle_momentum=False, pct_start=0.4, div_factor=5.0)",
    "CyclicLR(o, 0.01, 0.2, 3, 4, mode='triangular2')",
    "CyclicLR(o, 0.01, 0.2, 3, mode='exp_range', gamma=0.9)",
    "CyclicLR(o, 0.01, 0.2, 3, scale_fn=lambda x: 1 / x)",
    "CyclicLR(o, [0.01, 0.1], 0.2, 3, scale_fn=lambda x: 0.99**x, scale_mode='iterations')",
    "SequentialLR(o, [s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9)], [4])",
    "SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 3), s.ConstantLR(o, 1.0), s.StepLR(o, 2)], [3, 7])",
    "ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9)])",
    "ReduceLROnPlateau(o, patience=1, cooldown=1)",
    "ReduceLROnPlateau(o, 'max', 0.5, 0, threshold=0.1, threshold_mode='abs', min_lr=[0.02, 0.1])",
    "ReduceLROnPlateau(o, 'max', 0.5, 0, threshold=0.1, eps=0.03)",
    "swa.SWALR(o, [0.02, 0.5], 6)",
    "swa.SWALR(o, 0.02, 4, 'linear')",
    "swa.SWALR(o, 0.02, 0)",
]
MEASURES = (1.0, 0.5, 0.55, 0.51, 0.6, 0.3, 0.3, 0.3, 0.29995, 0.3)


def optimizer(lib, text: str = "SGD", lr=0.1):
    """Of two groups, the second with a rate of its own."""
    groups = [{"params": [lib.nn.Parameter(lib.ones(1))]}]
    groups.append({"params": [lib.nn.Parameter(lib.ones(1))], "lr": 0.3})
    options = {"momentum": 0.9} if text == "SGD" else {}
    return getattr(lib.optim, text)(groups, lr=lr, **options)


def schedule(lib, text: str, o):
    names = {"s": lib.optim.lr_scheduler, "o": o, "swa": lib.optim.swa_utils}
    return eval(text if text.startswith("swa.") else "s." + text, names)


def walk(o, scheduler, steps: range) -> list[list[float]]:
    """What the groups have after each step, and what the schedule says it has set."""
    path = []
    for i in steps:
        o.step()
        scheduler.step(*([MEASURES[i % 10]] if "Plateau" in type(scheduler).__name__ else []))
        row = [float(g["lr"]) for g in o.param_groups]
        row += [g["momentum"] if "momentum" in g else g["betas"][0] for g in o.param_groups]
        path.append(row + [float(v) for v in scheduler.get_last_lr()])
    return path


@pytest.mark.parametrize("text", SCHEDULES)
def test_schedule(text):
    def run(lib):
        o = optimizer(lib)
        scheduler = schedule(lib, text, o)
        path = [scheduler.get_last_lr(), *walk(o, scheduler, range(20))]
        return [path, sorted(scheduler.state_dict()), getattr(scheduler, "last_epoch", None)]

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_loaded_schedule_goes_on(text):
    """The second half is the same with a schedule that was made anew and has loaded the state."""
    o = optimizer(tenon)
    scheduler = schedule(tenon, text, o)
    walk(o, scheduler, range(9))
    again = optimizer(tenon)
    later = schedule(tenon, text, again)
    walk(again, later, range(2))
    again.load_state_dict(copy.deepcopy(o.state_dict()))
    later.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    assert later.state_dict().keys() == scheduler.state_dict().keys()
    assert later.get_last_lr() == scheduler.get_last_lr()
    assert walk(again, later, range(9, 18)) == walk(o, scheduler, range(9, 18))


CLOSED = [text for text in SCHEDULES if text.split("(")[0] in (
    "LambdaLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR",
    "CosineAnnealingLR", "CosineAnnealingWarmRestarts")]  # fmt: skip


@pytest.mark.parametrize("text", CLOSED)
def test_any_epoch(text):
    """step(epoch) sets the rate of that epoch; the way goes on from there."""

    def run(lib):
        o = optimizer(lib)
        scheduler = schedule(lib, text, o)
        path = []
        o.step()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for epoch in (3, 0, 7, 4, 8, 9, 20, 5):
                scheduler.step(epoch)
                path.append([g["lr"] for g in o.param_groups])
            scheduler.step(2)
        path += walk(o, scheduler, range(4))
        return [path, [str(w.message).split(".")[0] for w in told], scheduler.last_epoch]

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


def test_warm_restarts_take_parts_of_epochs():
    def run(lib):
        path = []
        for mult in (1, 2, 3):
            o = optimizer(lib)
            scheduler = lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2, mult)
            for epoch in (0.5, 1.75, 2.0, 3.5, 7.9, 8.0, 30.25, 1.0):
                scheduler.step(epoch)
                path.append([scheduler.get_last_lr(), scheduler.T_i, scheduler.last_epoch])
            scheduler.step()
            path.append([scheduler.get_last_lr(), scheduler.T_cur])
        return path

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


@pytest.mark.parametrize("text", [t for t in SCHEDULES if "cycle_momentum=False" not in t][::3])
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_schedule_of_adam(text, kind):
    def run(lib):
        o = optimizer(lib, kind)
        return walk(o, schedule(lib, text, o), range(12)) + [g["betas"] for g in o.param_groups]

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_rate_that_is_a_tensor_stays_it(text):
    """Its value changes in place; saved rates are copies."""

    def run(lib):
        rate = lib.tensor(0.1, dtype=lib.float64)
        o = optimizer(lib, "SGD", rate)
        scheduler = schedule(lib, text, o)
        held = scheduler.get_last_lr()[0]
        path = walk(o, scheduler, range(6))
        assert o.param_groups[0]["lr"] is rate
        assert held is not rate and scheduler.get_last_lr()[0] is not rate
        return [path, float(held)]

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


@pytest.mark.parametrize(
    "text", [t for t in SCHEDULES if t.split("(")[0] not in
             ("SequentialLR", "ChainedScheduler", "ReduceLROnPlateau")])  # fmt: skip
def test_resuming_at_an_epoch(text):
    def run(lib):
        start = (text[:-1] if text.endswith(")") else text) + ", last_epoch=4)"
        o = optimizer(lib)
        try:
            schedule(lib, start, o)
        except KeyError as err:
            told = str(err).split(" in ")[0]
        else:
            told = "nothing"
        o = optimizer(lib)
        walk(o, schedule(lib, text, o), range(4))
        scheduler = schedule(lib, start, o)
        return [told, scheduler.last_epoch, walk(o, scheduler, range(5))]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored.same(run(tenon), stored.of_torch(run), 1e-12, 0)


class Power:
    """A function of the epoch with something to save."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, epoch: float) -> float:
        return self.base**epoch


@pytest.mark.parametrize(
    "make",
    ["LambdaLR(o, [f, g])", "MultiplicativeLR(o, [f, g])", "CyclicLR(o, 0.1, 1.0, 2, scale_fn=f)"],
)
def test_functions_that_are_objects_are_saved(make):
    def run(lib):
        def made(f, g):
            names = {"o": optimizer(lib), "f": f, "g": g, "s": lib.optim.lr_scheduler}
            return eval("s." + make, names)

        f, g = Power(0.5), lambda epoch: 1.0
        state = copy.deepcopy(made(f, g).state_dict())
        other = Power(0.9)
        again = made(other, g)
        key = "_scale_fn_custom" if "Cyclic" in make else "lr_lambdas"
        saved = state[key]
        again.load_state_dict(state)
        return [saved, other.base, again.state_dict()[key]]

    stored.same(run(tenon), stored.of_torch(run))


WRONG = [
    "LambdaLR(o, [lambda e: 1])",
    "LambdaLR('o', lambda e: 1)",
    "ConstantLR(o, 1.5)",
    "ConstantLR(o, -0.5)",
    "LinearLR(o, 0.0)",
    "LinearLR(o, 1.5)",
    "LinearLR(o, end_factor=1.5)",
    "LinearLR(o, end_factor=-0.5)",
    "CosineAnnealingWarmRestarts(o, 0)",
    "CosineAnnealingWarmRestarts(o, 1.5)",
    "CosineAnnealingWarmRestarts(o, 2, 0)",
    "CosineAnnealingWarmRestarts(o, 2, 1.5)",
    "CosineAnnealingWarmRestarts(o, 2, 1, '0')",
    "CosineAnnealingWarmRestarts(o, 2).step(-1)",
    "OneCycleLR('o', 0.1, 10)",
    "OneCycleLR(o, 0.1)",
    "OneCycleLR(o, 0.1, epochs=3)",
    "OneCycleLR(o, 0.1, -3)",
    "OneCycleLR(o, 0.1, 2.5)",
    "OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3)",
    "OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=1.5)",
    "OneCycleLR(o, 0.1, 10, pct_start=1)",
    "OneCycleLR(o, 0.1, 10, pct_start=1.5)",
    "OneCycleLR(o, 0.1, 10, anneal_strategy='sin')",
    "OneCycleLR(o, [0.1], 10)",
    "OneCycleLR(plain, 0.1, 10)",
    "CyclicLR('o', 0.1, 1)",
    "CyclicLR(o, 0.1, 1, mode='round')",
    "CyclicLR(o, [0.1], 1)",
    "CyclicLR(o, 0.1, [1, 2, 3])",
    "CyclicLR(plain, 0.1, 1)",
    "SequentialLR(o, [], [])",
    "SequentialLR(o, [s.StepLR(o, 1)], [1])",
    "SequentialLR(o, [s.StepLR(o, 1), s.StepLR(plain, 1)], [1])",
    "SequentialLR(o, [s.StepLR(o, 1), s.ReduceLROnPlateau(o)], [1])",
    "SequentialLR(o, [s.StepLR(o, 1), 7], [1])",
    "ChainedScheduler([])",
    "ChainedScheduler([s.StepLR(o, 1), s.StepLR(plain, 1)])",
    "ReduceLROnPlateau(o, factor=1.0)",
    "ReduceLROnPlateau('o')",
    "ReduceLROnPlateau(o, min_lr=[0.1])",
    "ReduceLROnPlateau(o, 'least')",
    "ReduceLROnPlateau(o, threshold_mode='some')",
    "swa.SWALR(o, [0.1])",
    "swa.SWALR(o, 0.1, anneal_strategy='sin')",
    "swa.SWALR(o, 0.1, -1)",
    "swa.SWALR(o, 0.1, 1.5)",
    "swa.get_ema_avg_fn(1.5)",
    "swa.get_ema_avg_fn(-0.5)",
    "swa.get_ema_multi_avg_fn(1.5)",
    "swa.AveragedModel(net, avg_fn=max, multi_avg_fn=max)",
]


@pytest.mark.parametrize("text", WRONG)
def test_errors_read_like_pytorch(text):
    def error(lib) -> str:
        names = {"s": lib.optim.lr_scheduler, "swa": lib.optim.swa_utils, "o": optimizer(lib)}
        p = [lib.nn.Parameter(lib.ones(1)), lib.nn.Parameter(lib.ones(1))]
        names["plain"] = lib.optim.Adagrad([{"params": p[:1]}, {"params": p[1:]}])
        names["net"] = lib.nn.Linear(1, 1)
        try:
            eval(text if text.startswith("swa.") else "s." + text, names)
        except Exception as err:
            # Objects are told by where they are in memory, libraries by their names.
            return f"{type(err).__name__}: {str(err).split(' scheduler ')[0]}"
        return "no error"

    mine = error(tenon)
    assert mine != "no error"
    assert mine.split(":")[0] == stored.of_torch(error).split(":")[0]
    assert mine.split(":", 1)[1][:25] == stored.of_torch(error).split(":", 1)[1][:25]


def test_a_group_added_later():
    o = optimizer(tenon)
    fixed = tenon.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[0.09, 0.01])
    free = tenon.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5, min_lr=0.06)
    o.add_param_group({"params": [tenon.nn.Parameter(tenon.ones(1))], "lr": 0.8})
    for _ in range(2):
        free.step(1.0)
    assert [g["lr"] for g in o.param_groups] == [0.06, 0.15, 0.4]
    fixed.step(1.0)
    with pytest.raises(RuntimeError, match=r"groups in the `optimizer` \(3\) differs .* \(2\)"):
        fixed.step(1.0)


def test_warnings_point_at_the_caller():
    o = optimizer(tenon)
    scheduler = tenon.optim.lr_scheduler.StepLR(o, 2)
    with pytest.warns(UserWarning, match="use `get_last_lr") as told:
        scheduler.get_lr()
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="call of `lr_scheduler.step") as told:
        scheduler.step()
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()  # told once
        o.step()
        made = tenon.optim.lr_scheduler.StepLR(o, 2)
        o.step()
        made.step()
    with pytest.warns(UserWarning, match="use `get_last_lr"):
        made.get_lr()  # what a step has called is no longer in force
    with pytest.warns(UserWarning, match="epoch parameter") as told:
        made.step(3)
    assert told[0].filename == __file__


def test_one_cycle_ends():
    o = optimizer(tenon)
    scheduler = tenon.optim.lr_scheduler.OneCycleLR(o, 1.0, 3)
    walk(o, scheduler, range(3))
    with pytest.raises(ValueError, match="Tried to step 4 times. The specified number .* is 3"):
        scheduler.step()


AVERAGES = [
    "",
    "avg_fn=u.get_ema_avg_fn(0.9)",
    "avg_fn=u.get_swa_avg_fn()",
    "multi_avg_fn=u.get_ema_multi_avg_fn(0.8)",
    "multi_avg_fn=u.get_swa_multi_avg_fn()",
    "use_buffers=True",
    "multi_avg_fn=u.get_ema_multi_avg_fn(0.8), use_buffers=True",
]


@pytest.mark.parametrize("options", AVERAGES)
def test_averaged_model(options):
    def run(lib):
        net = lib.nn.BatchNorm1d(2, dtype=lib.float64)
        names = {"u": lib.optim.swa_utils, "net": net}
        average = eval(f"u.AveragedModel(net, {options})", names)
        for i in range(4):
            with lib.no_grad():
                net.weight.fill_(float(i * i))
                net.bias.fill_(1.0 / (1 + i))
                net.running_mean.fill_(2.0**i)
                net.num_batches_tracked.fill_(10 * i + 1)
            average.update_parameters(net)
        net.weight.data.fill_(-1.0)
        return [*average.state_dict().items()]

    stored.same(run(tenon), stored.of_torch(run), 1e-7, 0)  # PyTorch's lists: float32 weights


@pytest.mark.parametrize("pairs", [False, True])
def test_update_bn(pairs):
    def run(lib):
        net = lib.nn.Sequential(lib.nn.BatchNorm1d(2, momentum=0.3), lib.nn.BatchNorm1d(2))
        net.eval()
        net[1].running_mean.fill_(77.0)
        data = [lib.tensor([[1.0, 2.0], [3.0, 7.0]]) * k for k in (1, 2, 5)]
        lib.optim.swa_utils.update_bn([(x, 0) for x in data] if pairs else data, net)
        facts = [net.training, net[0].momentum, net[1].momentum]
        still = lib.nn.Linear(1, 1).eval()
        lib.optim.swa_utils.update_bn(iter([1 / 1]), still)  # no norm: nothing is read
        return [facts, still.training, *net.buffers()]

    stored.same(run(tenon), stored.of_torch(run), 1e-6, 1e-7)


def test_what_is_better_by_more_than_the_threshold():
    def run(lib):
        o = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=1.0)

        def bad_epochs(measures, **options):
            s = lib.optim.lr_scheduler.ReduceLROnPlateau(o, patience=9, **options)
            for measure in measures:
                s.step(measure)
            return s.num_bad_epochs

        found = []
        for mode in ("min", "max"):
            for threshold_mode in ("rel", "abs"):
                how = {"mode": mode, "threshold": 0.25, "threshold_mode": threshold_mode}
                found.append([bad_epochs([2.0, k / 8], **how) for k in range(8, 25)])
                found.append(bad_epochs([math.nan, math.nan], **how))
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_schedules_are_of_optimizers_and_say_the_next_rate():
    with pytest.raises(TypeError, match="dict is not an Optimizer"):
        tenon.optim.lr_scheduler.StepLR({}, 1)
    o = tenon.optim.SGD([tenon.nn.Parameter(tenon.ones(1))], lr=1.0)
    with pytest.raises(NotImplementedError):
        tenon.optim.lr_scheduler.LRScheduler(o)
