"""Adafactor: adaptive steps whose variances are kept as one row and one column per matrix."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.optim._steps import _step_dtype
from tenon.optim.optimizer import Optimizer, step_with_closure

__all__ = ["Adafactor"]


def _root_mean_square(x: Tensor) -> float:
    return x.norm(2).item() / x.numel() ** 0.5


class Adafactor(Optimizer):
    """Steps relative to the size of the parameters, divided by factored root variances.

    Step: Matrices keep means of g g for rows and columns only; the step has at most the size d,
        times max(eps[1], rms(p)) and min(lr, 1 / sqrt(t)).

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Adafactor([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9000])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for ok, text in (
            (lr >= 0.0, f"Learning rate should be >= 0 but is: {lr}"),
            (beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}"),
            (eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}"),
            (eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}"),
            (d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}"),
            (weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}"),
        ):
            if not ok:
                raise ValueError(text)
        options = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                own = self.state.get(p, {})
                if own and not isinstance(own["step"], Tensor):
                    own["step"] = tenon.tensor(float(own["step"]), dtype=_step_dtype())

    def _new_state(self, grad: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = {"step": tenon.tensor(0.0, dtype=_step_dtype())}
        if grad.dim() > 1:
            state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
            state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
        else:
            state["variance"] = tenon.zeros_like(grad)
        return state

    @step_with_closure
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.is_complex():
                    raise RuntimeError("Adafactor does not support complex parameters")
                if p.grad.is_sparse:
                    raise RuntimeError("Adafactor does not support sparse gradients")
                if not self.state[p]:
                    self.state[p].update(self._new_state(p.grad))
                self._update(p, -p.grad if group["maximize"] else p.grad, group)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, lr = self.state[p], float(group["lr"])
        least, smallest = group["eps"]
        least = tenon.finfo(p.dtype).eps if least is None else least
        state["step"] += 1
        step = state["step"].item()
        alpha = max(smallest, _root_mean_square(p)) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        update = self._variance(state, grad, step ** group["beta2_decay"], least)
        update = update.clamp_(min=least * least).rsqrt_().mul_(grad)
        p.add_(update, alpha=-alpha / max(1.0, _root_mean_square(update) / group["d"]))

    def _variance(self, state: dict[str, Any], grad: Tensor, fresh: float, least: float) -> Tensor:
        """The running mean of squares, with `fresh` as the share of the newest."""
        if grad.dim() < 2:
            return state["variance"].lerp_(grad * grad, fresh).clone()
        for key, dim in (("row_var", -1), ("col_var", -2)):
            mean = grad.norm(dim=dim, keepdim=True).square_().div_(grad.size(dim))
            state[key].lerp_(mean, fresh)
        whole = state["row_var"].mean(dim=-2, keepdim=True).clamp_(min=least)
        return (state["row_var"] @ state["col_var"]).div_(whole)
