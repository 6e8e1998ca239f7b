"""PyTorch's compiler of kernels, which Tenon does not have: its settings are accepted."""
