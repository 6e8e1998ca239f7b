"""Averages over groups of several sizes: small ones often, large ones seldom."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tenon import distributed
from tenon.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """period_group_size_dict: after how many steps groups of which size average, from small groups
    to the whole process group. Where several are due, the largest averages."""

    def __init__(
        self,
        period_group_size_dict: Mapping[int, int] | None = None,
        warmup_steps: int = 0,
        process_group: Any = None,
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        self._periods = list(period_group_size_dict)
        if self._periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a "
                             "positive value.")  # fmt: skip
        if self._periods[-1] == 1:
            warnings.warn(
                "When the maximum period in arg ``period_group_size_dict`` is 1, parameters are "
                "averaged after each step: gradients, as DistributedDataParallel averages them, "
                "cost no more",
                stacklevel=2,
            )
        sizes, whole = list(period_group_size_dict.values()), self.process_group.size()
        if sizes[-1] != whole:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to "
                f"the size of arg ``process_group`` {whole}."
            )
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict = {
            period: self.process_group if size == whole else distributed.new_subgroups(
                group_size=size, group=self.process_group)[0]
            for period, size in period_group_size_dict.items()
        }  # fmt: skip

    def _find_process_group(self) -> Any:
        """The largest group whose time it is; None: no group's."""
        due = [p for p in self._periods if self.step % p == 0]
        return self.period_process_group_dict[due[-1]] if due else None

    def average_parameters(self, params: Any) -> None:
        """Averages, where it is time, and counts the step."""
        group = self._find_process_group() if self.step >= self.warmup_steps else None
        if group is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
