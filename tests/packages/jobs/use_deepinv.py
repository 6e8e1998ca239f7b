"""Physics of imaging, their adjoints, denoisers, restoration and a trained unfolded net."""

import deepinv as dinv
import torch
from report import report

numbers = torch.Generator().manual_seed(3)
picture = torch.rand(1, 1, 16, 16, generator=numbers)
torch.manual_seed(0)
kernel = dinv.physics.blur.gaussian_blur(sigma=(1.0, 1.5))
for physics in (
    dinv.physics.BlurFFT((1, 16, 16), kernel),
    dinv.physics.Blur(kernel, padding="circular"),
    dinv.physics.Inpainting((1, 16, 16), mask=0.6),
    dinv.physics.Downsampling((1, 16, 16), factor=2),
    dinv.physics.Denoising(dinv.physics.GaussianNoise(0.1)),
    dinv.physics.Decolorize(),
):
    torch.manual_seed(1)
    given = (
        picture.expand(1, 3, 16, 16) if isinstance(physics, dinv.physics.Decolorize) else picture
    )
    seen = physics(given)
    report(type(physics).__name__, seen)
    report("adjoint", physics.A_adjoint(seen))
    report("dagger", physics.A_dagger(seen), 1e-2)
for noise in (
    dinv.physics.PoissonNoise(0.1),
    dinv.physics.UniformNoise(0.2),
    dinv.physics.LogPoissonNoise(),
):
    torch.manual_seed(2)
    report(type(noise).__name__, noise(picture))
for denoiser in (
    dinv.models.TVDenoiser(n_it_max=30),
    dinv.models.MedianFilter(),
    dinv.models.TGVDenoiser(n_it_max=20),
):
    report(type(denoiser).__name__, denoiser(picture, 0.1), 1e-3)
torch.manual_seed(3)
net = dinv.models.DnCNN(1, 1, depth=4, nf=8, pretrained=None)
physics = dinv.physics.BlurFFT((1, 16, 16), kernel)
report("net", net(picture))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for loss_of in (
    dinv.loss.MCLoss(),
    dinv.loss.SureGaussianLoss(0.1),
    dinv.loss.SupLoss(),
    dinv.loss.TVLoss(),
):
    torch.manual_seed(4)
    optimizer.zero_grad()
    y = physics(picture)
    guess = net(y)
    loss = loss_of(
        x=picture, x_net=guess, y=y, physics=physics, model=lambda y, physics, **_: net(y)
    ).mean()
    loss.backward()
    optimizer.step()
    report(type(loss_of).__name__, loss, 1e-3)
report(
    "metrics",
    [
        m(picture * 0.9, picture)
        for m in (dinv.metric.PSNR(), dinv.metric.SSIM(), dinv.metric.MSE())
    ],
)
