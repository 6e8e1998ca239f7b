"""Versions of operators that plugins add: names, adapters, kernels for either, clashes."""

from __future__ import annotations

import re
from typing import Any

import as_user
import pytest
import tenon as tn
from added import COMPOSITE, POINTWISE, load, private_cache  # noqa: F401

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

X = [1.0, 2.0]


def value(name: str, op: str = "f", **more: Any) -> list[float]:
    return getattr(tn.ops, name)[op](tn.tensor(X), **more).tolist()


def composite(name: str, schema: str, formula: str, plugin: str | None = None) -> Any:
    return load(plugin or name, f'{COMPOSITE}"{schema}", .formula = "{formula}"')


def test_newest_and_named() -> None:
    composite("va", "va::f(Tensor x) -> Tensor", "x + 1", "va_one")
    assert value("va") == value("va", "f@1") == [2, 3]
    composite("va", "va::f@3(Tensor x, float by=3.0) -> Tensor", "x + by", "va_three")
    composite("va", "va::f@2(Tensor x) -> Tensor", "x + 2", "va_two")
    assert value("va") == value("va", "f@3") == [4, 5]
    assert value("va", by=0) == X
    assert value("va", "f@2") == [3, 4] and value("va", "f@1") == [2, 3]
    assert dir(tn.ops.va) == ["f"]
    assert "added by plugin 'va_three'" in tn.explain("va::f")
    assert "added by plugin 'va_one'" in tn.explain("va::f@1")
    for wrong in ("f@4", "f@0", "f@", "f@1x", "f@01x", "f@99999999999"):
        with pytest.raises(AttributeError, match="there is no operator"):
            tn.ops.va[wrong]
    with pytest.raises(TypeError, match=re.escape("va::f@3() got an unexpected keyword")):
        value("va", no=1)


def test_first_version_may_say_so() -> None:
    composite("vb", "vb::f@1(Tensor x) -> Tensor", "x * 2")
    assert value("vb") == value("vb", "f@1") == [2, 4]
    with pytest.raises(ImportError, match="'vb::f' is there already, version 1 of plugin 'vb': "
                       "plugin 'vb_again' needs a name or a version of its own"):  # fmt: skip
        composite("vb", "vb::f(Tensor x) -> Tensor", "x", "vb_again")
    composite("vb", "vb::f@2(Tensor x) -> Tensor", "x * 3", "vb_second")
    with pytest.raises(ImportError, match="'vb::f@2' is there already, version 2 of plugin"):
        composite("vb", "vb::f@2(Tensor x) -> Tensor", "x", "vb_again")


def test_retired_versions() -> None:
    """The name without a version follows what is there."""
    composite("vc", "vc::f(Tensor x) -> Tensor", "x + 1", "vc_one")
    composite("vc", "vc::f@2(Tensor x) -> Tensor", "x + 2", "vc_two")
    old = tn.ops.vc["f@1"]
    assert value("vc") == [3, 4]
    tn.retire_plugin("vc_two")
    assert value("vc") == [2, 3]
    with pytest.raises(AttributeError, match="vc::f@2"):
        tn.ops.vc["f@2"]
    composite("vc", "vc::f@2(Tensor x) -> Tensor", "x + 2", "vc_two")
    assert value("vc") == [3, 4]
    tn.retire_plugin("vc_one")
    assert value("vc") == [3, 4]
    assert old(tn.tensor(X)).tolist() == [2, 3]
    tn.retire_plugin("vc_two")
    assert dir(tn.ops.vc) == []
    composite("vc", "vc::f(Tensor x) -> Tensor", "x + 5", "vc_other")
    assert value("vc") == [6, 7]


ADAPTER = """
    op.kind = TN_OP_COMPOSITE;
    op.schema = "vd::f@1(Tensor x, float scale) -> Tensor";
    op.formula = "vd::f(x, 0, scale=scale)";
    st = h->register_op(t, &op);
    if (st != TN_OK) return st;
    op.schema = "vd::g(Tensor x) -> Tensor";
    op.formula = "vd::f@1(x, 10) + vd::f@2(x, 1)";
    return h->register_op(t, &op);
"""


def test_adapter() -> None:
    """An old version over the new one, and formulas that name either."""
    schema = '"vd::f@2(Tensor x, float offset, *, float scale=1.0) -> Tensor"'
    load("vd", f'{COMPOSITE}{schema}, .formula = "x * scale + offset"', ADAPTER)
    assert value("vd", "f@1", scale=2) == [2, 4]
    assert value("vd", offset=1) == [2, 3]
    assert value("vd", "g") == [12, 23]
    x = tn.tensor(X, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(lambda t: tn.ops.vd["f@1"](t, 3.0), (x,))


def test_adapter_in_a_circle() -> None:
    more = """
    op.schema = "ve::f@1(Tensor x) -> Tensor";
    op.formula = "ve::f@2(x)";
    return h->register_op(t, &op);
    """
    fields = f'{COMPOSITE}"ve::f@2(Tensor x) -> Tensor", .formula = "ve::f@1(x)"'
    with pytest.raises(ImportError, match="leads back to the operator itself"):
        load("ve", fields, more)


@pytest.mark.parametrize("first", [1, 2])
def test_kernels_for_either(first: int) -> None:
    """A plugin that was built for version 1, loaded before or after one that brings version 2: each
    kernel is that of the version whose arguments it takes."""
    name = f"vf{first}"

    def one() -> None:
        row = f'return kernel(h, t, "{name}::f", 0, copy, TN_F32, 0);'
        load(f"{name}_one", f'{POINTWISE}"{name}::f(Tensor x) -> Tensor"', row)

    def two() -> None:
        before = (
            "static tn_status twice(const tn_call *c, const void *a) { (void)c;"
            "tn_rows r; for (tn_rows_start(&r, *(const tn_plan *const *)a); tn_rows_next(&r);)"
            "for (int64_t i = 0; i < r.n; i++)"
            "*TN_ROW(float, r, 0, i) = 2 * *TN_ROW(const float, r, 1, i);"
            "return TN_OK; }"
        )
        row = f'return kernel(h, t, "{name}::f", 0, twice, TN_F32, 0);'
        schema = f'"{name}::f@2(Tensor x, *, int n=2) -> Tensor"'
        load(f"{name}_two", POINTWISE + schema, row, before)

    for load_one in (one, two) if first == 1 else (two, one):
        load_one()
    assert value(name) == [2, 4] and value(name, "f@1") == X
    late = (
        'const tn_call_iface *c = (const tn_call_iface *)h->query("tn.call/1");'
        f'const tn_op_info *one = c->find("{name}::f@1");'
        f'return kernel(h, t, "{name}::f", one->sig, seven, TN_F32, 5);'
    )
    before = (
        "static tn_status seven(const tn_call *c, const void *a) { (void)c;"
        "tn_rows r; for (tn_rows_start(&r, *(const tn_plan *const *)a); tn_rows_next(&r);)"
        "for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = 7; return TN_OK; }"
    )
    load(f"{name}_late", f'{POINTWISE}"{name}_late::f(Tensor x) -> Tensor"', late, before)
    assert value(name) == [2, 4] and value(name, "f@1") == [7, 7]
    named = late.replace(f'kernel(h, t, "{name}::f"', f'kernel(h, t, "{name}::f@2"').replace(
        "::f@1", "::f"
    )
    load(f"{name}_named", f'{POINTWISE}"{name}_named::f(Tensor x) -> Tensor"', named, before)
    assert value(name) == [7, 7]


@pytest.mark.parametrize("version", ["@0", "@", "@x", "@10000", "@02"])
def test_bad_versions(version: str) -> None:
    with pytest.raises(ImportError, match="a version is a number from 1 to 9999"):
        composite("vg", f"vg::f{version}(Tensor x) -> Tensor", "x")


OFFERED = """
import tenon as tn
x = tn.ones(3, dtype=tn.float64)
assert tn.allclose(tn.ops.example["gelu@1"](x), tn.nn.functional.gelu(x))
try:
    tn.ops.example["gelu@2"]
except AttributeError as err:
    assert "example::gelu@2" in str(err), err
else:
    raise AssertionError
"""


def test_manifest_names_every_version(tmp_path: Any) -> None:
    ops = as_user.EXAMPLES / "ops"
    as_user.build(ops / "gelu.c", ops / "tenon_example.json", tmp_path)
    done = as_user.run(tmp_path, "-c", OFFERED)
    assert done.returncode == 0, done.stderr


def test_command_describes_added_operators(tmp_path: Any) -> None:
    ops = as_user.EXAMPLES / "ops"
    as_user.build(ops / "gelu.c", ops / "tenon_example.json", tmp_path)
    done = as_user.run(tmp_path, "-m", "tenon", "op", "example::gelu", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    for text in ("example::gelu(Tensor input) -> Tensor", "tenon.ops.example.gelu",
                 "gradient: input: grad * ", "cpu float32: "):  # fmt: skip
        assert text in done.stdout
    done = as_user.run(tmp_path, "-m", "tenon", "op", "example::none")
    assert done.returncode == 1 and "example::none" in done.stderr
