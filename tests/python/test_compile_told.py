"""What compiled functions tell: torch._logging.set_logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenon as tn
from tenon._torch import _logging


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    yield
    _logging.set_logs()


def told(records: list[Any], name: str) -> list[str]:
    return [r.getMessage() for r in records if r.getMessage().startswith(f"[{name}]")]


def twice(x: tn.Tensor) -> tn.Tensor:
    return x.sin() * 2


@pytest.mark.parametrize("backend", ["inductor", lambda gm, inputs: gm.forward], ids=["own", "fx"])
def test_graphs_and_recompiles(
    backend: Callable[..., Any] | str, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    _logging.set_logs(recompiles=True, graph_code=True)
    f = tn.compile(twice, backend=backend, dynamic=False)
    f(tn.ones(2))
    assert told(caplog.records, "recompiles") == []
    (code,) = told(caplog.records, "graph_code")
    assert "sin" in code and "twice" in code
    f(tn.ones(2))
    assert len(caplog.records) == 1  # the graph is there
    f(tn.ones(3))
    assert told(caplog.records, "recompiles") == [
        "[recompiles] twice: no graph of it is for this call"
    ]
    assert len(told(caplog.records, "graph_code")) == 2
    assert "no graph of it is" in capfd.readouterr().err
    _logging.set_logs()
    f(tn.ones(4))
    assert len(caplog.records) == 3 and capfd.readouterr().err == ""


def test_where_graphs_end(caplog: pytest.LogCaptureFixture) -> None:
    def looks(x: tn.Tensor) -> tn.Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    _logging.set_logs(graph_breaks=True)
    tn.compile(looks)(tn.ones(2))
    (text,) = told(caplog.records, "graph_breaks")
    assert "looks is no graph" in text and "test_compile_told.py" in text
    assert told(caplog.records, "graph_code") == []


def test_levels(caplog: pytest.LogCaptureFixture) -> None:
    _logging.set_logs(dynamo=logging.INFO, modules={"acme.model": logging.ERROR})
    assert logging.getLogger("torch._dynamo").level == logging.INFO
    assert logging.getLogger("acme.model").level == logging.ERROR
    tn.compile(twice)(tn.ones(5))
    assert caplog.records == []
    _logging.set_logs(all=logging.DEBUG, aot_graphs=True)
    tn.compile(lambda x: x.cos())(tn.ones(5))
    assert len(told(caplog.records, "graph_code")) == 1
    _logging.set_logs(aot_graphs=True)  # of what is not there nothing is told
    assert logging.getLogger("torch._dynamo").level == logging.NOTSET
    tn.compile(lambda x: x.tan())(tn.ones(5))
    assert len(caplog.records) == 1


def test_wrong_settings() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'recompile'"):
        _logging.set_logs(recompile=True)
    with pytest.raises(ValueError, match="Expected bool to enable artifact recompiles"):
        _logging.set_logs(recompiles=2)
    with pytest.raises(ValueError, match="Unrecognized log level for log dynamo: 7"):
        _logging.set_logs(dynamo=7)
    with pytest.raises(ValueError, match="there is no artifact 'acme'"):
        _logging.getArtifactLogger(__name__, "acme")
    assert _logging.getArtifactLogger(__name__, "guards").name == f"{__name__}.__guards"
