"""How long operations wait unless something else is said."""

from tenon.distributed._groups import DEFAULT_TIMEOUT

default_pg_timeout = DEFAULT_TIMEOUT
default_pg_nccl_timeout = DEFAULT_TIMEOUT

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
