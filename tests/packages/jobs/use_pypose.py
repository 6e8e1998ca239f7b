"""Groups of motions: exponentials and logarithms, actions, gradients, least squares, inertia."""

import pypose
import torch
from report import report

torch.manual_seed(0)
x, a = pypose.randn_SE3(3, requires_grad=True), pypose.randn_se3(3)
y = (x @ a.Exp()).Log()
report("log", y.tensor())
y.tensor().sum().backward()
report("gradient", x.grad)
report("action", x * torch.randn(3, 3))
report("adjoint", x.Adj(a).tensor())
report("inverse", x.Inv().tensor())
report("matrix", x.matrix())
turn = pypose.randn_SO3(2)
report("angles", turn.euler())
report("quaternions", pypose.mat2SO3(turn.matrix()).tensor())
report("similarity", pypose.randn_Sim3(2).Log().tensor(), 1e-3)


class Pose(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pose = pypose.Parameter(pypose.randn_SE3(2))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return (self.pose.Inv() @ given).Log().tensor()


model, given = Pose(), pypose.randn_SE3(2)
report("residuals", model(given))
solver = pypose.optim.LM(model, strategy=pypose.optim.strategy.Adaptive(damping=1e-6))
report("small", float(solver.step(given)) < 1e-6)
report("found", model.pose.tensor(), 1e-3)
start = torch.zeros(3), pypose.identity_SO3(), torch.zeros(3)
path = pypose.module.IMUPreintegrator(*start)(
    dt=torch.full((1, 5, 1), 0.1), gyro=torch.rand(1, 5, 3), acc=torch.rand(1, 5, 3)
)
report("places", path["pos"])
report("turns", path["rot"].tensor())
report("covariance", path["cov"], 1e-3)
