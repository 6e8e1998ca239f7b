"""Checkpoints of several processes: each writes its parts, and any number reads them."""

from tenon._submodules import on_demand
from tenon.distributed.checkpoint.api import CheckpointException
from tenon.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from tenon.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from tenon.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from tenon.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from tenon.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from tenon.distributed.checkpoint.state_dict_loader import load, load_state_dict
from tenon.distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict
from tenon.distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner",
    "DefaultSavePlanner", "FileSystemReader", "FileSystemWriter", "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter", "LoadPlan", "LoadPlanner", "Metadata", "ReadItem", "SavePlan",
    "SavePlanner", "StorageReader", "StorageWriter", "TensorStorageMetadata", "WriteItem",
    "async_save", "load", "load_sharded_optimizer_state_dict", "load_state_dict", "save",
    "save_state_dict",
]  # fmt: skip

on_demand(globals())
