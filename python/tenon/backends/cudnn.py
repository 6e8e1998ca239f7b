"""Settings that programs write for cuDNN; they change nothing on the CPU."""

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether cuDNN is in use."""
    return False


def version() -> None:
    """The version of cuDNN; there is none."""
    return None
