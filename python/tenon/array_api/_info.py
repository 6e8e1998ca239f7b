"""What the namespace tells of itself: `__array_namespace_info__` of the array API standard."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.array_api._dtypes import ALL, KINDS


class Info:
    """Capabilities, devices and dtypes of this namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What the standard leaves to libraries."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> tn.device:
        """Where arrays are made unless something else is said."""
        return tn.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, tn.dtype]:
        """Which dtypes arrays have unless something else is said."""
        real = tn.get_default_dtype()
        return {
            "real floating": real, "complex floating": real.to_complex(), "integral": tn.int64,
            "indexing": tn.int64,
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, tn.dtype]:
        """The dtypes of a kind, or of several, by their names."""
        if kind is None:
            return dict(ALL)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if unknown := [k for k in kinds if k not in KINDS]:
            raise ValueError(f"dtypes: kind is one of {', '.join(KINDS)}, not {unknown[0]!r}")
        return {name: dtype for k in kinds for name, dtype in KINDS[k].items()}

    def devices(self) -> tuple[tn.device, ...]:
        """The devices of this process."""
        others = [tn.device("cuda", i) for i in range(tn.cuda.device_count())]
        return (tn.device("cpu"), *others)


def __array_namespace_info__() -> Info:
    """What this namespace can do, and which devices and dtypes it has."""
    return Info()
