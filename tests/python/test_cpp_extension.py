"""utils.cpp_extension: modules for Python and plugins are built, code against libtorch is refused
with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import tenon as tn
from tenon.utils import cpp_extension

MODULE = """
#include <Python.h>
static PyObject *twice(PyObject *self, PyObject *n) {
    return PyLong_FromLong(2 * PyLong_AsLong(n));
}
static PyMethodDef methods[] = {{"twice", twice, METH_O, "2 n"}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, NAME, 0, -1, methods};
"""
C_MODULE = (
    '#define NAME "tn_ext_c"\n'
    + MODULE
    + """
PyMODINIT_FUNC PyInit_tn_ext_c(void) { return PyModule_Create(&module); }
"""
)
CPP_MODULE = (
    '#define NAME "tn_ext_cpp"\n'
    + MODULE
    + """
PyMODINIT_FUNC PyInit_tn_ext_cpp(void) { return PyModule_Create(&module); }
"""
)
PLUGIN = Path(__file__).parents[2] / "plugins" / "examples" / "ops" / "gelu.c"


def test_a_module_in_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "ext.c"
    source.write_text(C_MODULE)
    built = tmp_path / "built"
    built.mkdir()
    module = cpp_extension.load(
        "tn_ext_c", [str(source)], extra_cflags=["-O1"], build_directory=str(built), verbose=True
    )
    assert module.twice(21) == 42 and "-O1" in capsys.readouterr().out
    (library,) = built.glob("*.so")
    made = library.stat().st_mtime_ns
    again = cpp_extension.load("tn_ext_c", str(source), ["-O1"], build_directory=str(built))
    assert again.twice(1) == 2 and library.stat().st_mtime_ns == made
    source.write_text(C_MODULE.replace("2 * P", "3 * P"))
    changed = cpp_extension.load("tn_ext_c", str(source), ["-O1"], build_directory=str(built))
    assert changed.twice(1) == 3


def test_a_module_in_text(tmp_path: Path) -> None:
    module = cpp_extension.load_inline("tn_ext_cpp", CPP_MODULE, build_directory=str(tmp_path))
    assert module.twice(2) == 4


def test_what_needs_libtorch(tmp_path: Path) -> None:
    source = tmp_path / "op.cpp"
    source.write_text("// an operator\n#include <torch/extension.h>\nat::Tensor f(at::Tensor x);\n")
    with pytest.raises(RuntimeError, match=r"op\.cpp:2 includes <torch/extension\.h>.*plugins\.md"):
        cpp_extension.load("op", [str(source)], build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match="includes <ATen/ATen.h>"):
        cpp_extension.load_inline("op", ['#include "ATen/ATen.h"'], build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match=r"tenon\.ffi"):
        cpp_extension.load_inline("op", "int f();", functions="f", build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match=r"cuda\.md"):
        cpp_extension.load("op", ["kernel.cu"], build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match=r"cuda\.md"):
        cpp_extension.CUDAExtension("op", ["kernel.cu"])


def test_what_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Error building extension 'op'"):
        cpp_extension.load_inline("op", "int f( {", build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match="neither a module, with PyInit_op, nor a plugin"):
        cpp_extension.load_inline("op", "int f(int n) { return n; }", build_directory=str(tmp_path))


def test_a_plugin(tmp_path: Path) -> None:
    before = {p["name"] for p in tn.plugins()}
    source = tmp_path / "op.c"  # under a name of its own: others load the example, too
    source.write_text(PLUGIN.read_text(encoding="utf-8").replace("example", "extension_test"))
    path = cpp_extension.load(
        "tn_ext_plugin", [str(source)], build_directory=str(tmp_path), is_python_module=False,
        extra_ldflags=["-lm"],
    )  # fmt: skip
    (plugin,) = [p for p in tn.plugins() if p["path"] == path]
    assert plugin["active"] and plugin["name"] not in before
    tn.retire_plugin(plugin["name"])


def test_extensions_of_setuptools(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    from setuptools import Distribution

    good, bad = tmp_path / "ext.c", tmp_path / "op.cpp"
    good.write_text(C_MODULE)
    bad.write_text("#include <c10/util/Exception.h>\n")
    for source, message in ((good, None), (bad, "c10/util/Exception.h")):
        ext = cpp_extension.CppExtension("tn_ext_c", [str(source)])
        assert ext.language == "c++" and ext.include_dirs == cpp_extension.include_paths()
        command = cpp_extension.BuildExtension.with_options(use_ninja=False)(
            Distribution({"name": "x", "ext_modules": [ext]})
        )
        command.build_lib = command.build_temp = str(tmp_path / "out")
        command.ensure_finalized()
        if message is None:
            command.run()
            assert list((tmp_path / "out").glob("tn_ext_c*.so"))
        else:
            with pytest.raises(RuntimeError, match=message):
                command.run()
