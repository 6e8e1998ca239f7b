"""Asked by programs that look for mps; it is not used here."""


def is_available() -> bool:
    """Whether mps is in use."""
    return False


def is_built() -> bool:
    """Whether mps is part of this build."""
    return False
