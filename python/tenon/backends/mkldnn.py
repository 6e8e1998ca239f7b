"""Asked by programs that look for mkldnn; it is not used here."""


def is_available() -> bool:
    """Whether mkldnn is in use."""
    return False


def is_built() -> bool:
    """Whether mkldnn is part of this build."""
    return False
