"""Archives that PyTorch's jit.save wrote (tests/data/torchscript): what they compute, what their
modules are, and what in them is refused."""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon.io.errors import FileFormatError

FOLDER = Path(__file__).parent.parent / "data" / "torchscript"
NAMES = sorted(p.stem for p in FOLDER.glob("*.pt"))


def check(mine: Any, want: Any) -> None:
    """The same values, dtypes and kinds, to what a sum in another order costs."""
    if isinstance(want, tn.Tensor):
        close = {tn.bfloat16: 1e-2, tn.float32: 1e-5}.get(want.dtype, 1e-6)
        tn.testing.assert_close(mine, want, rtol=close, atol=close)
    elif isinstance(want, dict):
        assert list(mine) == list(want)
        check(list(mine.values()), list(want.values()))
    elif isinstance(want, (list, tuple)):
        assert isinstance(mine, (list, tuple)) and len(mine) == len(want)
        for a, b in zip(mine, want, strict=True):
            check(a, b)
    else:
        assert type(mine) is type(want) and mine == want


def loaded(name: str) -> Any:
    return tn.jit.load(FOLDER / f"{name}.pt")


def test_all_are_there() -> None:
    assert len(NAMES) == 13


@pytest.mark.parametrize("name", NAMES)
def test_values(name: str) -> None:
    args, want = tn.load(FOLDER / f"{name}.io")
    check(loaded(name)(*args), want)


# ---- Modules -------------------------------------------------------------------------------------


def test_a_module_is_one() -> None:
    net = loaded("convolutions")
    assert isinstance(net, tn.jit.ScriptModule) and not net.training and net.conv.padding == "same"
    assert net.original_name == "Convolutions" and net.conv.original_name == "Conv2d"
    assert repr(net).startswith("RecursiveScriptModule(\n  original_name=Convolutions\n  (conv): ")
    assert [n for n, _ in net.named_children()][:3] == ["conv", "batch", "instance"]
    names = set(net.state_dict())
    assert {"conv.weight", "batch.running_mean", "slope.weight", "back.bias"} <= names
    assert {n for n, _ in net.named_parameters()} == {n for n in names if "batch.r" not in n} - {
        "batch.num_batches_tracked"
    }
    assert net.code.startswith("def forward(self: __torch__.Convolutions,\n  x: Tensor) -> ")
    assert "self.conv" in net.code and "self.conv" in str(net.graph)


def test_training_and_gradients() -> None:
    net = loaded("convolutions").train()
    x = tn.randn(1, 2, 8, 8)
    net(x)[0].sum().backward()
    assert net.batch.num_batches_tracked.item() == 1 and net.conv.weight.grad.abs().sum() > 0
    before = net.conv.weight.detach().clone()
    tn.optim.SGD(net.parameters(), lr=0.5).step()
    assert not tn.equal(net.conv.weight, before)
    other = loaded("convolutions")
    other.load_state_dict(net.state_dict())
    tn.testing.assert_close(other(x)[0], net.eval()(x)[0])


def test_copies_and_dtypes() -> None:
    net = loaded("course")
    (x,), want = tn.load(FOLDER / "course.io")
    twin = copy.deepcopy(net)
    for p in twin.parameters():
        p.data.zero_()
    check(net(x), want)
    wide = loaded("course").double()(x.double())
    tn.testing.assert_close(wide[0].float(), want[0])


def test_methods_defaults_and_attributes() -> None:
    net = loaded("course")
    x = tn.ones(2, 4)
    tn.testing.assert_close(net.twice(x), x * 2 + 2)
    assert net.held.tolist() == [2.0] * 4 and net.scale == 0.5 and net.names == ["a", "bc"]
    more = loaded("course")
    tn.testing.assert_close(more(x, y=tn.ones(4))[0], more(x)[0] + 1)
    tn.testing.assert_close(more(x, n=1)[0], more(x, 1)[0])
    with pytest.raises(tn.jit.Error, match="n must be positive"):
        more(x, 0)
    for args in ((), (x, 1, x, 2)):
        with pytest.raises(RuntimeError, match=r"forward\(\): "):
            more(*args)
    with pytest.raises(AttributeError, match="nothing"):
        more.nothing  # noqa: B018


def test_what_else_takes_them(tmp_path: Path) -> None:
    (x,), want = tn.load(FOLDER / "convolutions.io")
    net = loaded("convolutions")
    check(tn.jit.freeze(net)(x), want)
    check(tn.jit.script(net)(x), want)
    traced = tn.jit.trace(net, x)
    tn.jit.save(traced, tmp_path / "a.tng")
    check(tn.jit.load(tmp_path / "a.tng")(x), want)
    with pytest.raises(RuntimeError, match="comes from a TorchScript archive"):
        net.save(tmp_path / "b.pt")
    with pytest.raises(RuntimeError, match=r"TorchScript archive.*jit\.load"):
        tn.load(FOLDER / "convolutions.pt")


def test_what_is_entered_is_left() -> None:
    args, _ = tn.load(FOLDER / "kinds.io")
    with tn.enable_grad():
        loaded("kinds")(*args)
        assert tn.is_grad_enabled()


def test_extra_files_and_places() -> None:
    data = (FOLDER / "halves.pt").read_bytes()
    extra = {"about.txt": "", "absent": ""}
    net = tn.jit.load(io.BytesIO(data), map_location="cpu", _extra_files=extra)
    assert extra == {"about.txt": b"a note", "absent": b""} and net.weight.dtype == tn.bfloat16
    assert tn.jit.load(io.BytesIO(data), "meta").weight.device.type == "meta"


# ---- What is refused -----------------------------------------------------------------------------


def changed(name: str, change: Callable[[str, bytes], bytes | None]) -> io.BytesIO:
    """An archive whose members are changed; None: the member is left out."""
    file = io.BytesIO()
    with zipfile.ZipFile(FOLDER / f"{name}.pt") as old, zipfile.ZipFile(file, "w") as new:
        for member in old.infolist():
            data = change(member.filename.partition("/")[2], old.read(member))
            if data is not None:
                new.writestr(member.filename, data, member.compress_type)
    file.seek(0)
    return file


def with_code(body: str) -> Any:
    """arithmetic.pt with another body of its function."""
    head = (
        "class PlaceholderModule(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
        "  training : bool\n"
        "  def forward(self: __torch__.PlaceholderModule, x: Tensor) -> Tensor:\n"
    )
    text = head + "".join(f"    {line}\n" for line in body.split("\n"))
    file = changed(
        "arithmetic", lambda name, data: text.encode() if name.endswith("__torch__.py") else data
    )
    return tn.jit.load(file)


@pytest.mark.parametrize(
    "body",
    [
        "import os\nreturn x", "return x.__class__", "return (x).__class__.__base__",
        "return torch.nn.functional.relu(x)", "return open(x)", "return __builtins__",
        "return [y for y in x]", "return (lambda: x)()", "x.y.z = 1", "return x if x else x",
        "del x\nreturn x", "global x", "raise x", "return x + x", "return f'{x}'", "return not x",
        "return x[0:1]", "x[0] = 1", "return torch.add(*x)", "return torch.add(**x)",
        "return CONSTANTS.c7", "return CONSTANTS.x", "return ops.load_library.x(x)",
        "return ops.absent.thing(x)", "return __torch__.absent(x)", "return __import__(x)",
        "y = (y := x)\nreturn y", "try:\n  pass\nfinally:\n  pass", "return (yield x)",
        "__x = x\nreturn __x", "return isinstance(x, Thing)", "return getattr(x, x)",
    ],
)  # fmt: skip
def test_code_that_is_no_torchscript(body: str) -> None:
    with pytest.raises((FileFormatError, AttributeError)):
        with_code(body)(tn.ones(2))


@pytest.mark.parametrize(
    "word",
    ["load", "save", "compile", "from_file", "hub", "set_default_device", "os", "__dict__"],
)
def test_words_that_are_no_operators(word: str) -> None:
    with pytest.raises((NotImplementedError, AttributeError, TypeError)):
        with_code(f"return torch.{word}(x)")(tn.ones(2))


@pytest.mark.parametrize(
    "change",
    [
        lambda name, data: None if name == "data.pkl" else data,
        lambda name, data: None if name == "constants.pkl" else data,
        lambda name, data: None if name.startswith("code/") else data,
        lambda name, data: b"def f(:" if name.startswith("code/") else data,
        lambda name, data: b"\xff\xfe" if name.startswith("code/") else data,
        lambda name, data: b"x = 1" if name.startswith("code/") else data,
        lambda name, data: b"class CNN(Module):\n  pass\n" if name.startswith("code/") else data,
        lambda name, data: b"f(" * 90_000 if name.startswith("code/") else data,
        lambda name, data: data + b"#" * (33 << 20) if name.startswith("code/") else data,
        lambda name, data: b"\x80\x02]." if name == "data.pkl" else data,
        lambda name, data: data.replace(b"  training : bool\n", b"  other = 3\n"),
        lambda name, data: data.replace(b"  training : bool\n", b"  (a, b) = 3\n"),
        lambda name, data: data.replace(b"  training : bool\n", b"  for x in y: pass\n"),
        lambda name, data: data.replace(b"class Linear(Module)", b"class Linear"),
        lambda name, data: data.replace(b"forward", b"__setstate__"),
        lambda name, data: data.replace(b"__torch__", b"os.system"),
        lambda name, data: data[:-1] if name == "data.pkl" else data,
        lambda name, data: data[:2] if name == "data/0" else data,
    ],
)
def test_structures_that_are_wrong(change: Callable[[str, bytes], bytes | None]) -> None:
    with pytest.raises(FileFormatError):
        tn.jit.load(changed("halves", change))


def test_code_that_swells() -> None:
    """A member that decompresses to more than the archive says is cut there."""
    data = (FOLDER / "arithmetic.pt").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo("archive/code/__torch__.py").file_size
    with pytest.raises(FileFormatError):
        wrong = data.replace(size.to_bytes(4, "little"), (size // 2).to_bytes(4, "little"))
        tn.jit.load(io.BytesIO(wrong))


def test_code_that_is_nested_deep() -> None:
    for depth, ends in ((60, False), (90, True)):
        body = "return " + "torch.neg(" * depth + "x" + ")" * depth
        if ends:
            with pytest.raises(FileFormatError, match="nested more than|too many nested|no code"):
                with_code(body.replace("x", "x" + "[0]" * 200))
        else:
            assert with_code(body)(tn.ones(1)).item() == 1


def test_texts_show_nothing_that_is_inside() -> None:
    assert with_code('return torch.format("{} {}", 3, "a")')(tn.ones(2)) == "3 a"
    with pytest.raises(AttributeError):
        with_code('return torch.format("{0.__class__}", 3)')(tn.ones(2))


def test_an_operator_that_is_absent_is_named_when_it_is_called() -> None:
    net = with_code("if torch.gt(torch.dim(x), 3):\n  x = torch.no_such_thing(x)\nreturn x")
    assert net(tn.ones(2)).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="aten::no_such_thing"):
        net(tn.ones(1, 1, 1, 1))
