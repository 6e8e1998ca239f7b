"""Which part of a model gets which QConfig: by name, by pattern, by kind, or all."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

from tenon import nn
from tenon.ao.quantization import qconfig as qc

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]


_WAYS = ("object_type", "module_name_regex", "module_name", "module_name_object_type_order")


class QConfigMapping:
    """What is said of a module's name is heeded first, then what is said of patterns, of kinds,
    and of all."""

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: OrderedDict[Any, Any] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[Any, Any] = OrderedDict()

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """For all that nothing else is said of."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """For modules of a class, calls of a function, or of a method by its name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """For modules whose name a pattern matches; the first that does."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """For one module and what it is made of."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: Any
    ) -> QConfigMapping:
        """For the index-th call of a kind within a module."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def to_dict(self) -> dict[str, Any]:
        """As a dict, as older programs write it."""
        order = self.module_name_object_type_order_qconfigs
        return {
            "": self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [(*key, value) for key, value in order.items()],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """From such a dict."""
        made = cls().set_global(qconfig_dict.get(""))
        for key in _WAYS:
            for row in qconfig_dict.get(key, ()):
                getattr(made, f"set_{key}")(*row)
        return made

    def of(self, kinds: tuple[Any, ...], name: str) -> Any:
        """The QConfig of a call of these kinds in the module of that name."""
        around = name
        while around:
            if around in self.module_name_qconfigs:
                return self.module_name_qconfigs[around]
            around = around.rpartition(".")[0]
        for pattern, config in self.module_name_regex_qconfigs.items():
            if re.match(pattern, name):
                return config
        for kind in kinds:
            if kind in self.object_type_qconfigs:
                return self.object_type_qconfigs[kind]
        return self.global_qconfig

    def __repr__(self) -> str:
        rows = [f"QConfigMapping (\n global_qconfig\n  {self.global_qconfig}"]
        for name in _WAYS:
            known = getattr(self, f"{name}_qconfigs")
            rows.append(f" {name}_qconfigs")
            rows += [f"  {k}: {v}" for k, v in known.items()] or ["  OrderedDict()"]
        return "\n".join([*rows, ")"])


def _default(config: Any, per_tensor: Any) -> QConfigMapping:
    made = QConfigMapping().set_global(config)
    for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
        made.set_object_type(kind, qc.QConfig(config.activation, per_tensor))
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """get_default_qconfig for all."""
    return _default(qc.get_default_qconfig(backend, version), qc.default_qconfig.weight)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """get_default_qat_qconfig for all."""
    return _default(qc.get_default_qat_qconfig(backend, version), qc.default_qat_qconfig.weight)
