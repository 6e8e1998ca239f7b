"""How long operations wait unless something else is said."""

from datetime import timedelta

DEFAULT_TIMEOUT = timedelta(minutes=30)
default_pg_timeout = DEFAULT_TIMEOUT
default_pg_nccl_timeout = DEFAULT_TIMEOUT

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
