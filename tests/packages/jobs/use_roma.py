"""Rotations in all their forms, registration, averages and projections with gradients."""

import roma
import torch
from report import report

torch.manual_seed(0)
q = roma.random_unitquat(5)
turns = roma.unitquat_to_rotmat(q)
report("matrices", turns)
report("vectors", roma.rotmat_to_rotvec(turns))
report("quaternions", roma.rotmat_to_unitquat(turns))
report("angles", roma.rotmat_to_euler("xyz", turns))
report("projection", roma.procrustes(torch.randn(4, 3, 3))[0])
report("gram", roma.special_gramschmidt(torch.randn(3, 3, 2)))
report("between", roma.utils.unitquat_slerp(q[:2], q[2:4], torch.linspace(0, 1, 4)))
turn, shift = roma.rigid_points_registration(torch.randn(10, 3), torch.randn(10, 3))
report("registration", turn)
report("shift", shift)
matrix = torch.randn(3, 3, requires_grad=True)
(roma.special_procrustes(matrix) * torch.arange(9.0).view(3, 3)).sum().backward()
report("gradient", matrix.grad, 1e-3)
