"""The names of pruning, which packages import; using one raises."""

from __future__ import annotations

from tenon.distributed._absent import absent

_MODULE, _INSTEAD = "torch.nn.utils.prune", "parametrize can mask a parameter"

BasePruningMethod = absent(_MODULE, "BasePruningMethod", _INSTEAD)
PruningContainer = absent(_MODULE, "PruningContainer", _INSTEAD)
Identity = absent(_MODULE, "Identity", _INSTEAD)
RandomUnstructured = absent(_MODULE, "RandomUnstructured", _INSTEAD)
L1Unstructured = absent(_MODULE, "L1Unstructured", _INSTEAD)
RandomStructured = absent(_MODULE, "RandomStructured", _INSTEAD)
LnStructured = absent(_MODULE, "LnStructured", _INSTEAD)
CustomFromMask = absent(_MODULE, "CustomFromMask", _INSTEAD)
identity = absent(_MODULE, "identity", _INSTEAD)
random_unstructured = absent(_MODULE, "random_unstructured", _INSTEAD)
l1_unstructured = absent(_MODULE, "l1_unstructured", _INSTEAD)
random_structured = absent(_MODULE, "random_structured", _INSTEAD)
ln_structured = absent(_MODULE, "ln_structured", _INSTEAD)
global_unstructured = absent(_MODULE, "global_unstructured", _INSTEAD)
custom_from_mask = absent(_MODULE, "custom_from_mask", _INSTEAD)
remove = absent(_MODULE, "remove", _INSTEAD)
is_pruned = absent(_MODULE, "is_pruned", _INSTEAD)
