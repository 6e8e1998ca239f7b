"""What programs want to be told by PyTorch's compiler, and what compiled functions tell of it."""

from __future__ import annotations

import logging
from typing import Any

from tenon._program import told

__all__ = ["getArtifactLogger", "set_logs"]

# Parts of PyTorch whose loggers have a level, by the loggers' names.
_LEVELS = {
    "all": "torch", "dynamo": "torch._dynamo", "aot": "torch._functorch",
    "autograd": "torch.autograd", "dynamic": "torch.fx.experimental",
    "inductor": "torch._inductor", "distributed": "torch.distributed",
    "c10d": "torch.distributed.distributed_c10d",
    "ddp": "torch.nn.parallel.distributed", "fsdp": "torch.distributed.fsdp",
    "dtensor": "torch.distributed.tensor", "onnx": "torch.onnx", "export": "torch.export",
}  # fmt: skip
# What is told under these names; of the others, which name stages that are not there, nothing is.
_TOLD = {
    "graph_breaks": "graph_breaks", "graph": "graph_code", "graph_code": "graph_code",
    "graph_code_verbose": "graph_code", "recompiles": "recompiles",
    "recompiles_verbose": "recompiles",
}  # fmt: skip
_UNTOLD = frozenset((
    "bytecode", "aot_graphs", "aot_joint_graph", "ddp_graphs", "side_effects", "graph_sizes",
    "guards", "trace_source", "trace_call", "trace_bytecode", "output_code", "kernel_code",
    "schedule", "perf_hints", "pre_grad_graphs", "post_grad_graphs", "ir_pre_fusion",
    "ir_post_fusion", "onnx_diagnostics", "fusion", "overlap", "cudagraphs", "sym_node",
    "compiled_autograd", "compiled_autograd_verbose", "cudagraph_static_inputs", "benchmarking",
    "autotuning", "incremental", "graph_region_expansion", "inductor_metrics",
    "hierarchical_compile", "compute_dependencies", "caching",
))  # fmt: skip


def _check_level(name: str, level: Any) -> None:
    if level not in logging.getLevelNamesMapping().values():
        raise ValueError(f"Unrecognized log level for log {name}: {level}")


def set_logs(*, modules: dict[str, Any] | None = None, **wanted: Any) -> None:
    """Says what compiled functions tell, and nothing else from then on: graph_breaks, graph_code
    and recompiles, or all of them with a level of `dynamo` or `all` that is DEBUG. Levels go to the
    loggers of the names that PyTorch gives them, those of `modules` to loggers by their own."""
    levels = {}
    names: set[str] = set()
    for name, value in wanted.items():
        if name in _LEVELS:
            if value is not None:
                _check_level(name, value)
                levels[_LEVELS[name]] = value
        elif name not in _TOLD and name not in _UNTOLD:
            raise TypeError(f"set_logs() got an unexpected keyword argument '{name}'")
        elif not isinstance(value, bool):
            raise ValueError(f"Expected bool to enable artifact {name}")
        elif value and name in _TOLD:
            names.add(_TOLD[name])
    for name, value in (modules or {}).items():
        _check_level(name, value)
        levels[name] = value
    for name in _LEVELS.values():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    if logging.DEBUG in (levels.get("torch"), levels.get("torch._dynamo")):
        names |= told.NAMES
    told.ask_for(names)


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:  # noqa: N802
    """The logger by which a module tells what the name stands for."""
    if artifact_name not in _TOLD and artifact_name not in _UNTOLD:
        raise ValueError(f"getArtifactLogger: there is no artifact '{artifact_name}'")
    return logging.getLogger(f"{module_qname}.__{artifact_name}")
