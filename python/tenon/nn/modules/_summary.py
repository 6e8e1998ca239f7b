"""The table that `Module.summary` gives: modules by path, shapes of their results, parameters."""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._C import Tensor


def _shape(result: Any) -> str:
    if isinstance(result, Tensor):
        return str(list(result.shape))
    if isinstance(result, tuple | list):
        return ", ".join(text for text in map(_shape, result) if text)
    return ""


def _result_shapes(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """The shape of what each module returns when it is last called, by path."""
    shapes: dict[str, str] = {}

    def watch(path: str, child: Any) -> Any:
        def note(_module: Any, _args: Any, result: Any) -> None:
            shapes[path] = _shape(result)

        return child.register_forward_hook(note)

    hooks = [watch(path, child) for path, child in module.named_modules()]
    modes = [(child, child.training) for child in module.modules()]
    try:
        module.eval()
        with _C.no_grad():
            module(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for child, mode in modes:
            child.training = mode
    return shapes


def summary(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One line per module, and how many parameters there are; shared ones count once."""
    shapes = _result_shapes(module, args, kwargs) if args or kwargs else {}
    rows = [("module", "class", "result", "parameters")]
    for path, child in module.named_modules():
        own = sum(p.numel() for p in child.parameters(recurse=False))
        rows.append((path or "(itself)", child._get_name(), shapes.get(path, ""), f"{own:,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:>{widths[3]}}"
        for a, b, c, d in rows
    ]
    every = list(module.parameters())
    total = sum(p.numel() for p in every)
    trained = sum(p.numel() for p in every if p.requires_grad)
    size = sum(p.numel() * p.element_size() for p in every)
    lines.append(f"{total:,} parameters, {trained:,} of them trained, {size:,} bytes")
    return "\n".join(lines)
