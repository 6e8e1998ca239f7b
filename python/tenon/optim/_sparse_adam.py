"""SparseAdam: Adam for the rows that a sparse gradient names."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon import Tensor
from tenon.optim.optimizer import Optimizer, step_with_closure


class SparseAdam(Optimizer):
    """Moments and parameters change where the gradient has elements; all else stays as it is.

    Step: Adam's step for the rows that a sparse gradient names.

    >>> table = nn.Embedding(3, 1, sparse=True)
    >>> _ = nn.init.ones_(table.weight)
    >>> optimizer = tn.optim.SparseAdam(table.parameters(), lr=0.1)
    >>> table(tn.tensor([2])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.data.flatten()
    tensor([1.0000, 1.0000, 0.9000])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            (i, j)
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p.layout is not tenon.strided
        ]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        imaginary = [
            [i, j]
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p.is_complex()
        ]
        if imaginary:
            raise ValueError(
                f"Complex params at indices {imaginary}: SparseAdam does not support complex "
                "parameters"
            )

    @step_with_closure
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not p.grad.is_sparse:
                    raise RuntimeError(
                        "SparseAdam does not support dense gradients, please consider Adam instead"
                    )
                state = self.state[p]
                if not state:
                    self._check_new_state()
                    state["step"] = 0
                    state["exp_avg"] = tenon.zeros_like(p)
                    state["exp_avg_sq"] = tenon.zeros_like(p)
                state["step"] += 1
                grad = -p.grad if group["maximize"] else p.grad
                if grad._nnz():
                    self._step_rows(p, grad.coalesce(), state, group)

    def _step_rows(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """One step at the places of grad, which is coalesced."""
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"].sparse_mask(grad), state["exp_avg_sq"].sparse_mask(grad)
        mean_change = (grad - mean).mul_(1 - beta1)
        square_change = (grad.square() - square).mul_(1 - beta2)
        state["exp_avg"].add_(mean_change)
        state["exp_avg_sq"].add_(square_change)
        root = (square + square_change)._values().sqrt().add_(group["eps"])
        change = (mean + mean_change)._values() / root
        size = float(group["lr"]) * math.sqrt(1 - beta2 ** state["step"])
        size /= 1 - beta1 ** state["step"]
        rows = tenon.sparse_coo_tensor(grad._indices(), change, p.shape, is_coalesced=True)
        p.add_(rows, alpha=-size)
