"""LBFGS: a quasi-Newton method over all parameters as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tenon
from tenon import Tensor
from tenon.optim.optimizer import Optimizer, as_real, check_at_least


class _Point(NamedTuple):
    """A place on the search line: step, loss, gradient, slope along the direction."""

    t: Any
    f: float
    g: Tensor
    slope: Tensor


def _cubic_minimum(a: _Point, b: _Point, low: Any = None, high: Any = None) -> Any:
    """Where the cubic through both points with their slopes is least, within the bounds."""
    if low is None:
        low, high = (a.t, b.t) if a.t <= b.t else (b.t, a.t)
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    if a.t <= b.t:
        place = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    else:
        place = a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2))
    return min(max(place, low), high)


class _LineSearch:
    """Finds a step with less loss and less slope (the strong Wolfe conditions)."""

    def __init__(
        self, evaluate: Callable[[Any], tuple[float, Tensor]], d: Tensor,
        slope: float = 1e-4, curve: float = 0.9, close: float = 1e-9,
    ) -> None:  # fmt: skip
        self.evaluate = evaluate
        self.d = d
        self.slope, self.curve, self.close = slope, curve, close
        self.evaluations = 0

    def at(self, t: Any) -> _Point:
        f, g = self.evaluate(t)
        self.evaluations += 1
        return _Point(t, f, g.clone(), g.dot(self.d))

    def too_high(self, point: _Point, start: _Point) -> Any:
        return point.f > start.f + self.slope * point.t * start.slope

    def flat(self, point: _Point, start: _Point) -> Any:
        return abs(point.slope) <= -self.curve * start.slope

    def run(self, t: Any, start: _Point, most: int) -> _Point:
        last, point = start, self.at(t)
        tries = 0
        bracket = None
        while tries < most:
            if self.too_high(point, start) or (tries > 1 and point.f >= last.f):
                bracket = [last, point]
                break
            if self.flat(point, start):
                return point
            if point.slope >= 0:
                bracket = [last, point]
                break
            low, high = point.t + 0.01 * (point.t - last.t), point.t * 10
            t = _cubic_minimum(last, point, low, high)
            last, point = point, self.at(t)
            tries += 1
        if bracket is None or tries == most:
            bracket = [start, point]
        return self.zoom(bracket, start, tries, most)

    def zoom(self, bracket: list[_Point], start: _Point, tries: int, most: int) -> _Point:
        """Shrinks a bracket that holds a good step; returns its lower end."""
        widest = self.d.abs().max()
        stuck = False
        low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
        while tries < most:
            left, right = sorted((bracket[0].t, bracket[1].t))
            if abs(right - left) * widest < self.close:
                break
            t = _cubic_minimum(bracket[0], bracket[1])
            margin = 0.1 * (right - left)
            if min(right - t, t - left) < margin:
                if stuck or t >= right or t <= left:
                    t = right - margin if abs(t - right) < abs(t - left) else left + margin
                    stuck = False
                else:
                    stuck = True
            else:
                stuck = False
            point = self.at(t)
            tries += 1
            if self.too_high(point, start) or point.f >= bracket[low].f:
                bracket[high] = point
                low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
                continue
            done = self.flat(point, start)
            if not done and point.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
            if done:
                break
        return bracket[low]


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: Any = None
) -> Any:
    """Where the cubic through two values with their slopes is least, by PyTorch's arguments."""
    none = tenon.empty(0)
    slopes = [g if isinstance(g, Tensor) else tenon.tensor(float(g)) for g in (g1, g2)]
    ends = [_Point(x1, f1, none, slopes[0]), _Point(x2, f2, none, slopes[1])]
    return _cubic_minimum(*ends, *(bounds or ()))


def _strong_wolfe(
    obj_func: Callable[..., Any], x: Any, t: Any, d: Tensor, f: Any, g: Tensor, gtd: Any,
    c1: float = 1e-4, c2: float = 0.9, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[Any, Tensor, Any, int]:  # fmt: skip
    """A search from x along d, by PyTorch's arguments: the loss, the gradient and the step that
    it ends with, and how often it asked obj_func."""
    search = _LineSearch(lambda step: obj_func(x, step, d), d, c1, c2, tolerance_change)
    found = search.run(t, _Point(0, f, g, gtd), max_ls)
    return found.f, found.g, found.t, search.evaluations


class LBFGS(Optimizer):
    """step() needs a closure that computes the loss anew and returns it.

    Step: The direction follows from the last history_size changes of parameters and gradients.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.LBFGS([p], lr=0.1)
    >>> def loss():
    ...     optimizer.zero_grad()
    ...     value = (p * p).sum()
    ...     value.backward()
    ...     return value
    >>> _ = optimizer.step(loss)
    >>> p.data
    tensor([0.1216])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_at_least(lr, "learning rate")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _gather_flat_grad(self) -> Tensor:
        parts = []
        for p in self._params:
            grad = p.grad if p.grad is not None else tenon.zeros_like(p)
            parts.append(as_real(grad).reshape(-1))
        return tenon.cat(parts)

    def _move(self, t: Any, d: Tensor) -> None:
        start = 0
        for p in self._params:
            p = as_real(p)
            n = p.numel()
            p.add_(d[start : start + n].view_as(p), alpha=float(t))
            start += n

    def _evaluate_at(self, closure: Callable[[], Any], t: Any, d: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient at a step; the parameters come back to where they were."""
        before = [p.clone() for p in self._params]
        self._move(t, d)
        loss = float(closure())
        grad = self._gather_flat_grad()
        for p, old in zip(self._params, before):
            p.copy_(old)
        return loss, grad

    @staticmethod
    def _direction(state: dict[str, Any], grad: Tensor, size: int) -> Tensor:
        """-H grad, with H from the last `size` steps (two loops)."""
        y = grad.sub(state["prev_flat_grad"])
        s = state["d"].mul(state["t"])
        ys = y.dot(s)
        if ys > 1e-10:
            if len(state["old_dirs"]) == size:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / ys)
            state["H_diag"] = ys / y.dot(y)
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"]))
        al = state.setdefault("al", [None] * size)
        q = grad.neg()
        for i in range(len(history) - 1, -1, -1):
            y, s, ro = history[i]
            al[i] = s.dot(q) * ro
            q.sub_(y * al[i])
        r = q.mul(state["H_diag"])
        for i, (y, s, ro) in enumerate(history):
            r.add_(s * (al[i] - y.dot(r) * ro))
        return r

    def step(self, closure: Callable[[], Any]) -> Any:
        with tenon.no_grad():
            return self._step(closure)

    def _step(self, closure: Callable[[], Any]) -> Any:
        def evaluate() -> Any:
            with tenon.enable_grad():
                return closure()

        group = self.param_groups[0]
        lr, close = float(group["lr"]), group["tolerance_change"]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = evaluate()
        loss = float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        grad = self._gather_flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first_loss
        for turn in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state["d"] = grad.neg()
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
                t = min(1.0, 1.0 / grad.abs().sum()) * lr
            else:
                state["d"] = self._direction(state, grad, group["history_size"])
                t = lr
            d = state["d"]
            state["prev_flat_grad"] = grad.clone()
            state["prev_loss"] = previous = loss
            state["t"] = t
            slope = grad.dot(d)
            if slope > -close:
                break
            used = 0
            if search is not None:
                line = _LineSearch(lambda t, d=d: self._evaluate_at(evaluate, t, d), d)
                start = _Point(0, loss, grad, slope)
                point = line.run(t, start, group["max_eval"] - evaluations)
                loss, grad, t, used = point.f, point.g, point.t, line.evaluations
                state["t"] = t
                self._move(t, d)
            else:
                self._move(t, d)
                if turn != group["max_iter"]:
                    loss = float(evaluate())
                    grad = self._gather_flat_grad()
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or d.mul(t).abs().max() <= close
                or abs(loss - previous) < close
            ):
                break
        return first_loss
