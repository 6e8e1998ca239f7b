"""The earlier name of torch.distributed.tensor.experimental."""

from tenon.distributed.tensor.experimental import implicit_replication

__all__ = ["implicit_replication"]
