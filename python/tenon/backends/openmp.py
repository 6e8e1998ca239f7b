"""Asked by programs that look for openmp; it is not used here."""


def is_available() -> bool:
    """Whether openmp is in use."""
    return False


def is_built() -> bool:
    """Whether openmp is part of this build."""
    return False
