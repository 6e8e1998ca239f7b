"""The op table, as the build has written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tenon


def op_rows() -> list[dict[str, Any]]:
    """Every operator: its names, kind, arguments and more (dispatch/ops)."""
    path = Path(tenon.__file__).with_name("ops.json")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found
