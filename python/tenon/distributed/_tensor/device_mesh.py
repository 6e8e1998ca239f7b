"""The older name of tenon.distributed.device_mesh."""

from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
