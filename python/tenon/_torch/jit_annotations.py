"""Types of the script language, as `torch.jit.annotations` names them."""

from __future__ import annotations

from typing import Dict, Final, List, Optional, Tuple, Union  # noqa: UP035

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = List  # noqa: UP006

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Final", "List",
    "Optional", "Tuple", "Union",
]  # fmt: skip
