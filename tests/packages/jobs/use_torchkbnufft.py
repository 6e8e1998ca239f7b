"""Fourier transforms at places between the grid's, and back."""

import torch
import torchkbnufft as tkbn
from report import report

numbers = torch.Generator().manual_seed(5)
size = (12, 14)
places = (torch.rand(2, 60, generator=numbers) * 2 - 1) * torch.pi
image = torch.complex(*torch.randn(2, 1, 3, *size, generator=numbers, dtype=torch.float64))
forward = tkbn.KbNufft(im_size=size).to(image.dtype)
back = tkbn.KbNufftAdjoint(im_size=size).to(image.dtype)
places = places.double()
x = image.clone().requires_grad_()
data = forward(x, places)
report("data", torch.view_as_real(data), 1e-6)
data.abs().pow(2).sum().backward()
report("slope", torch.view_as_real(x.grad), 1e-6)
report("adjoint", torch.view_as_real(back(data.detach(), places)), 1e-6)
maps = torch.complex(*torch.randn(2, 1, 3, *size, generator=numbers, dtype=torch.float64))
report("coils", torch.view_as_real(forward(image[:, :1], places, smaps=maps)), 1e-6)
density = tkbn.calc_density_compensation_function(places, im_size=size, num_iterations=4)
report("density", torch.view_as_real(density), 1e-6)
kernel = tkbn.calc_toeplitz_kernel(places, size)
report("kernel", torch.view_as_real(kernel), 1e-6)
report("toeplitz", torch.view_as_real(tkbn.ToepNufft().to(image.dtype)(image, kernel)), 1e-6)
matrices = tkbn.calc_tensor_spmatrix(places, im_size=size)
report("sparse", torch.view_as_real(forward(image, places, interp_mats=matrices)), 1e-6)
