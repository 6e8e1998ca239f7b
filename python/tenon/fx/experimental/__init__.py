"""What packages ask about PyTorch's tracers of tensors and sizes."""
