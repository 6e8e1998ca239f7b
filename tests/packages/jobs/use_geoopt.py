"""Optimizers on manifolds: balls, Stiefel's, positive definite matrices, hyperboloids."""

import geoopt
import torch
from report import report

torch.manual_seed(0)
ball = geoopt.PoincareBall(c=1.0)
points = geoopt.ManifoldParameter(ball.random(6, 3), manifold=ball)
goal = ball.random(6, 3)
optimizer = geoopt.optim.RiemannianAdam([points], lr=0.05)
for _ in range(8):
    optimizer.zero_grad()
    loss = ball.dist2(points, goal).sum()
    loss.backward()
    optimizer.step()
    report("distance", loss, 1e-3)
report("points", points, 1e-3)
stiefel = geoopt.Stiefel()
frame = geoopt.ManifoldParameter(stiefel.random(5, 3), manifold=stiefel)
form = torch.randn(5, 5)
form = form @ form.T
optimizer = geoopt.optim.RiemannianSGD([frame], lr=0.01, momentum=0.9)
for _ in range(8):
    optimizer.zero_grad()
    loss = -(frame.T @ form @ frame).trace()
    loss.backward()
    optimizer.step()
    report("trace", loss, 1e-3)
report("frame", frame.T @ frame)
positive = geoopt.SymmetricPositiveDefinite()
root = torch.randn(2, 2, 3, 3, dtype=torch.float64)
p, q = root @ root.mT + torch.eye(3, dtype=torch.float64)
report("affine", positive.dist(p, q))
report("exponential", positive.expmap(p, positive.proju(p, q)))
lorentz = geoopt.Lorentz()
sheet = lorentz.random_normal(4, 3)
report("hyperboloid", lorentz.dist(sheet[:2], sheet[2:]))
