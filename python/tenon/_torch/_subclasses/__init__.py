"""Where PyTorch keeps tensors that stand for others while it traces; here there are none."""
