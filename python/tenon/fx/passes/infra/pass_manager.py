"""PassManager: runs passes one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.fx.graph_module import GraphModule
from tenon.fx.passes.infra.pass_base import PassResult
from tenon.fx.passes.pass_manager import check_order, this_before_that_pass_constraint

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[[GraphModule], PassResult | None]


class PassManager:
    """Runs passes in an order that constraints allow, `steps` times or until none changes."""

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Callable[[Pass, Pass], bool]] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes, self.constraints = passes or [], constraints or []
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Pass) -> None:
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable[[Pass, Pass], bool]) -> None:
        self.constraints.append(constraint)

    def add_checks(self, check: Callable[[GraphModule], Any]) -> None:
        """What must hold of the module after a pass: it raises where it does not."""
        self.check = check  # type: ignore[method-assign]

    def check(self, module: GraphModule) -> None:
        """Nothing, unless add_checks says otherwise."""

    def validate_constraints(self) -> None:
        """RuntimeError where the order of the passes breaks a constraint."""
        check_order(self.passes, self.constraints)

    def solve_constraints(self) -> None:
        """Puts the passes into an order that all constraints allow."""

        def breaks(first: Pass, second: Pass) -> int:
            return sum(not holds(first, second) for holds in self.constraints)

        if not self.constraints:
            return
        waits = {p: sum(breaks(p, q) for q in self.passes if q is not p) for p in self.passes}
        ready = [p for p in self.passes if not waits[p]]
        for done in ready:
            for p in self.passes:
                if waits[p] and p is not done and breaks(p, done):
                    waits[p] -= breaks(p, done)
                    if not waits[p]:
                        ready.append(p)
        if len(ready) < len(waits):
            left = [p for p in waits if waits[p]]
            raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
        self.passes = ready

    def __call__(self, module: GraphModule) -> PassResult:
        self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            again = False
            for do in self.passes:
                try:
                    result = do(module)
                except Exception as err:
                    err.add_note(f"An error occurred when running the '{_name(do)}' pass")
                    raise
                if not isinstance(result, PassResult):
                    raise TypeError(
                        f"The result of the pass {_name(do)} should be type PassResult. Please "
                        "wrap it with pass_result_wrapper()"
                    )
                module, again = result.graph_module, again or result.modified
                module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            changed = changed or again
            if not again:
                break
        return PassResult(module, changed)


def _name(do: Any) -> str:
    return getattr(do, "__name__", type(do).__name__)


def pass_result_wrapper(fn: Callable[[GraphModule], Any] | None) -> Any:
    """A function that changes a module as a pass."""

    def wrapped(module: GraphModule) -> PassResult | None:
        result = fn(module)  # type: ignore[misc]
        return result if isinstance(result, PassResult) else PassResult(module, True)

    if fn is not None:
        wrapped.__name__ = _name(fn)
    return None if fn is None else wrapped
