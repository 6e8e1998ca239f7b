"""What an installation must be able to do with nothing but Python: tried in empty systems."""

import tenon as tn

x = tn.randn(40, 40, requires_grad=True)
(x @ x).relu().sum().backward()
assert x.grad is not None and x.grad.shape == (40, 40)
# That was a product by BLAS; now LAPACK, then a convolution and an optimizer by our own kernels.
assert tn.linalg.svdvals(tn.eye(3)).tolist() == [1.0, 1.0, 1.0]
layer = tn.nn.Conv2d(3, 4, 3)
step = tn.optim.Adam(layer.parameters())
layer(tn.randn(2, 3, 8, 8)).square().mean().backward()
step.step()
print("works", tn.__version__)
