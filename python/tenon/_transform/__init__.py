"""Functions of functions: vmap, gradients."""
