"""Asked by programs that look for mkl; it is not used here."""


def is_available() -> bool:
    """Whether mkl is in use."""
    return False


def is_built() -> bool:
    """Whether mkl is part of this build."""
    return False
