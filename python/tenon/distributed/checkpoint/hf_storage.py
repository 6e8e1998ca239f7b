"""Checkpoints in files of safetensors."""

from tenon.distributed._absent import absent

_MODULE = "torch.distributed.checkpoint.hf_storage"
HuggingFaceStorageReader = absent(_MODULE, "HuggingFaceStorageReader")
HuggingFaceStorageWriter = absent(_MODULE, "HuggingFaceStorageWriter")

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]
