"""The modules behind `torch.func`, as packages import them."""
