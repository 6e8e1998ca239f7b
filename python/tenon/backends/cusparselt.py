"""Asked by programs that look for cuSPARSELt; it is not used here."""


def is_available() -> bool:
    """Whether cuSPARSELt is in use."""
    return False


def version() -> int | None:
    """The library's version: there is none."""
    return None


def get_max_alg_id() -> int | None:
    """How many algorithms it has: there is none."""
    return None
