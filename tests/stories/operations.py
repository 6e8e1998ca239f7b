"""Somebody who runs a cluster puts the plugins of several vendors into one image. Four are broken,
each in a way of its own; the fifth must work, and nobody's program may crash or slow down.

    python tests/stories/operations.py FOLDER     FOLDER holds the Tenon wheel
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# A constructor runs when a library is mapped, before anything that Tenon asks of it.
TRACE = """
#include <stdio.h>
__attribute__((constructor)) static void trace(void) {
    FILE *f = fopen("%s/" __FILE__, "a");
    if (f) fclose(f);
}
"""
# Vendor: what `activate` begins with, and words of its line in `tenon doctor`, among them a remedy.
VENDORS = {
    "crashing": ("*(volatile int *)8 = 0;", "died of SIGSEGV", "reinstall the plugin"),
    "unlinked": ("extern void lost(void); lost();", "undefined symbol: lost", "reinstall"),
    "driverless": ("extern void boot(void); boot();", "libboot.so", "reinstall"),
    "tomorrow": ("", "needs plugin ABI 1.99", "another Tenon"),
    "working": ("", "works, not loaded", ""),
}
PROGRAM = """
import tenon as tn
for name in ("crashing", "unlinked", "driverless", "tomorrow"):
    try:
        tn.ones(2, device=name)
    except RuntimeError as err:
        assert name in str(err), err
    else:
        raise AssertionError(name)
x = tn.ones(3, device="working", requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2.0] * 3 and x.grad.device.type == "working"
assert (tn.ones(2) + 1).tolist() == [2.0, 2.0]
print("the program has ended well")
"""


class Image:
    """An environment, and the commands in it."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("TENON_", "PYTHON", "PIP_"))
        }
        self.env = {
            **kept,
            "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_ROOT_USER_ACTION": "ignore",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "TENON_FALLBACK": "allow",
        }  # fmt: skip
        self("-m", "venv", str(folder / "venv"), program=sys.executable)

    def __call__(self, *args: str, program: str = "python", cwd: Path | None = None) -> str:
        path = shutil.which(program, path=self.env["PATH"]) or program
        done = subprocess.run(
            [path, *args], cwd=cwd or self.folder, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{program} {args}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def vendor(image: Image, name: str, code: str) -> None:
    """A wheel of one vendor: the device of `tenon plugin new`, with its fault."""
    image("plugin", "new", name, "--kind", "device", program="tenon")
    project = image.folder / name
    source = project / f"{name}.c"
    text = source.read_text(encoding="utf-8")
    head = "tn_txn *txn) {\n"
    assert text.count(head) == 1
    text = text.replace(head, f"{head}    {code}\n")
    source.write_text(text + TRACE % (image.folder / "traces"), encoding="utf-8")
    settings = project / "pyproject.toml"
    more = []
    if name == "unlinked":
        more = ["-Wl,-z,undefs"]
    if name == "driverless":  # it is there when the vendor links, and gone on the cluster
        (image.folder / "boot.c").write_text("void boot(void);\nvoid boot(void) {}\n")
        image("-shared", "-fPIC", "boot.c", "-o", "libboot.so", program="cc")
        more = [f"-L{image.folder}", "-Wl,--no-as-needed", "-lboot"]
    flags = json.dumps(["-std=gnu11", *more])
    settings.write_text(settings.read_text().replace('["-std=c11"]', flags), encoding="utf-8")
    if name == "tomorrow":
        manifest = project / f"tenon_{name}.json"
        manifest.write_text(manifest.read_text().replace('"min_minor": 0', '"min_minor": 99'))
    image(
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        "vendors",
        f"./{name}",
    )


def main(wheels: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        image = Image(Path(root), wheels)
        traces = Path(root, "traces")
        traces.mkdir()
        image("-m", "pip", "install", "-q", "tenon")
        for name, (code, *_) in VENDORS.items():
            vendor(image, name, code)
        Path(root, "libboot.so").unlink()
        image("-m", "pip", "install", "-q", *map(str, Path(root, "vendors").glob("*.whl")))

        image("-c", "import tenon as tn; tn.ones(3).exp().sum(); tn.nn.Linear(2, 2)")
        listing = image("plugin", "list", program="tenon")
        assert all(name in listing for name in VENDORS)
        assert not list(traces.iterdir()), "importing Tenon ran a vendor's code"

        print(doctor := image("doctor", program="tenon"))
        for name, (_, *words) in VENDORS.items():
            (line,) = (x for x in doctor.splitlines() if x.startswith(f"plugin      {name} "))
            assert all(word in line for word in words), line
            assert ("PROBLEM" in line) == (name != "working"), line
        assert "a small product is right" in doctor
        assert "Tenon is well; plugins with a PROBLEM: 4" in doctor

        print(image("-c", PROGRAM))
        ran = {path.name for path in traces.iterdir()}
        assert ran == {"crashing.c", "working.c"}, ran


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
