"""Asked by programs that look for KleidiAI; it is not used here."""


def is_available() -> bool:
    """Whether KleidiAI is in use."""
    return False
