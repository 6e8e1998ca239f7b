"""Event files for TensorBoard, written without it."""

from tenon.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
