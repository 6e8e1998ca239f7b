"""register_custom_op_symbolic: translations of a program's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon.nn import functional as F

onnx = pytest.importorskip("onnx")
rules = pytest.importorskip("tenon.onnx")


@pytest.fixture
def register() -> Iterator[Any]:
    """Rules, which are taken back afterwards."""
    made: list[tuple[str, int]] = []

    def add(name: str, rule: Any, opset: int = 9) -> None:
        rules.register_custom_op_symbolic(name, rule, opset)
        made.append((name, opset))

    yield add
    for name, opset in made:
        rules.unregister_custom_op_symbolic(name, opset)


class Net(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return F.hardswish(x) + F.gelu(x)


def _model(net: nn.Module | None = None, **options: Any) -> Any:
    return rules.export(net or Net(), (tn.linspace(-4, 4, 6),), **options).model_proto


def test_a_rule_stands_for_ours(register: Any) -> None:
    register("aten::hardswish", lambda g, x: g.op("Mul", x, _sigmoid(g, x)))
    model = _model()
    kinds = [n.op_type for n in model.graph.node]
    assert "HardSigmoid" in kinds and "HardSwish" not in kinds
    x = np.linspace(-3, 3, 6, dtype="f")
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})
    np.testing.assert_allclose(found, Net()(tn.from_numpy(x)).numpy(), atol=1e-5)


def _sigmoid(g: Any, x: Any) -> Any:
    return g.op("HardSigmoid", x, alpha_f=1 / 6, beta_f=0.5)


def test_nodes_of_a_domain(register: Any) -> None:
    def fast(g: Any, x: Any, approximate: str) -> Any:
        scale = g.op("Constant", value_t=tn.tensor([2.0]))
        return g.op("acme::FastGelu", x, scale, 1.5, kind_s=approximate, sizes_i=[1, 2]).setType(x)

    register("aten::gelu", fast)
    model = _model(custom_opsets={"acme": 3})
    (node,) = [n for n in model.graph.node if n.domain]
    known = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.domain, node.op_type) == ("acme", "FastGelu") and len(node.input) == 3
    assert known == {"kind": b"none", "sizes": [1, 2]}
    assert {o.domain: o.version for o in model.opset_import} == {"": 18, "acme": 3}


def test_composites_with_a_rule_stay_whole(register: Any) -> None:
    class Spectrum(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.fft.rfft(x).abs()

    with pytest.raises(rules.OnnxExporterError, match="no translation"):
        _model(Spectrum())
    register("aten::fft_rfft", lambda g, x, *rest: g.op("acme::Rfft", x))
    register("aten::abs", lambda g, x: g.op("acme::Abs", x))
    assert [n.op_type for n in _model(Spectrum()).graph.node][:2] == ["Rfft", "Abs"]


def test_the_latest_rule_that_the_opset_has(register: Any) -> None:
    for opset in (9, 18, 20):
        register("aten::hardswish", lambda g, x, n=opset: g.op(f"acme::H{n}", x), opset)
    assert "H18" in [n.op_type for n in _model().graph.node]
    assert "H20" in [n.op_type for n in _model(opset_version=21).graph.node]


def test_refusals(register: Any) -> None:
    with pytest.raises(ValueError, match="Failed to register operator gelu"):
        rules.register_custom_op_symbolic("gelu", _sigmoid, 9)
    register("aten::gelu", lambda g, x, approximate: g.op("acme::Gelu", x, kind="none"))
    with pytest.raises(ValueError, match="Invalid attribute specifier 'kind'"):
        _model()
    register("aten::gelu", lambda g, x, approximate: 3)
    with pytest.raises(rules.OnnxExporterError, match="gelu: the rule .* returns no values"):
        _model()
