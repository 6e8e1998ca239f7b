"""Attributions of inputs, layers and neurons."""

import numpy as np
import torch
from captum.attr import (
    LRP,
    DeepLift,
    DeepLiftShap,
    FeatureAblation,
    FeaturePermutation,
    GradientShap,
    GuidedBackprop,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    LayerActivation,
    LayerConductance,
    LayerDeepLift,
    LayerGradCam,
    LayerIntegratedGradients,
    Lime,
    NeuronConductance,
    NoiseTunnel,
    Occlusion,
    Saliency,
    ShapleyValueSampling,
)
from captum.metrics import infidelity, sensitivity_max
from report import report

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(36, 8),
    torch.nn.ReLU(),
    torch.nn.Linear(8, 3),
).eval()
x = torch.rand(2, 1, 6, 6)
zero = torch.zeros(2, 1, 6, 6)
for kind in (Saliency, InputXGradient, GuidedBackprop, DeepLift):
    report(kind.__name__, kind(net).attribute(x, target=1))
mlp = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
report("relevance", LRP(mlp).attribute(torch.rand(3, 6), target=1))
value, delta = IntegratedGradients(net).attribute(
    x, zero, target=torch.tensor([0, 2]), n_steps=20, return_convergence_delta=True
)
report("integrated", value)
report("delta", delta, 1e-3)
report("shap", DeepLiftShap(net).attribute(x, torch.rand(3, 1, 6, 6), target=0))
torch.manual_seed(1)
np.random.seed(0)
report("gradient shap", GradientShap(net).attribute(x, zero, n_samples=4, stdevs=0.1, target=2))
noise = NoiseTunnel(Saliency(net))
report("noise", noise.attribute(x, nt_type="vargrad", nt_samples=4, stdevs=0.2, target=1))
report("occlusion", Occlusion(net).attribute(x, (1, 2, 3), strides=(1, 2, 1), target=1))
mask = (torch.arange(36) // 6).view(1, 1, 6, 6)
for kind in (FeatureAblation, FeaturePermutation, ShapleyValueSampling):
    torch.manual_seed(2)
    report(kind.__name__, kind(net).attribute(x, target=1, feature_mask=mask))
for kind in (Lime, KernelShap):
    torch.manual_seed(3)
    report(kind.__name__, kind(net).attribute(x, target=1, feature_mask=mask, n_samples=30), 1e-3)
report("activation", LayerActivation(net, net[4]).attribute(x))
report("conductance", LayerConductance(net, net[3]).attribute(x, target=1, n_steps=10))
report("deep lift", LayerDeepLift(net, net[2]).attribute(x, target=1))
report("grad cam", LayerGradCam(net, net[0]).attribute(x, target=1, relu_attributions=True))
report("guided", GuidedGradCam(net, net[0]).attribute(x, target=1))
report("layer", LayerIntegratedGradients(net, net[2]).attribute(x, target=1, n_steps=8))
report("neuron", NeuronConductance(net, net[4]).attribute(x, 3, target=1, n_steps=8))
torch.manual_seed(4)
report("sensitivity", sensitivity_max(Saliency(net).attribute, x, target=1, n_perturb_samples=3))
fault = infidelity(
    net, lambda v: (v * 0.1, v * 0.9), x, Saliency(net).attribute(x, target=1), target=1
)
report("infidelity", fault)
