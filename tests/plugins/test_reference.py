"""The reference of the SDK names everything that the ABI's lock names, in the headers' words."""

from __future__ import annotations

import re
import subprocess
import sys

import as_user
import pytest


def reference(*names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon", "plugin", "reference", *names]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def page() -> str:
    done = reference()
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_there(page: str) -> None:
    index = page[: page.index("\n## ")]
    lines = (as_user.ROOT / "plugins" / "abi.lock").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    listed = [f"TN_{w[1].removeprefix('TN_')}" for w in words if w[0] == "const"]
    for name in [w[1] for w in words if w[0] == "struct"]:
        assert f"`{name}`" in index, name
    assert len(listed) > 80
    for name in listed:
        assert name.removeprefix("TN_") in page, name
    for member in (w[1].split(".")[1] for w in words if w[0] == "field"):
        assert member in page, member


def test_text_of_the_headers(page: str) -> None:
    """Every section, and its prose."""
    for header in ("plugin.h", "device.h"):
        text = (as_user.SDK / "tenon" / header).read_text(encoding="utf-8")
        titles = re.findall(r"^/\* -{4} (.+?) -{2,}", text, flags=re.M)
        assert len(titles) > 8
        for title in titles:
            assert f"\n## {title}\n" in page, title
    assert "A formula is an expression over the arguments" in page


def test_one_name() -> None:
    for name, words in {
        "tn_plan": "What a pointwise or reduction kernel walks over",
        "tn_txn": "Services of the core",
        "tn.graph/1": "records the operator calls",
        "TN_K_CAPTURE_SAFE": "One kernel.",
        "tn_kernel_fn": "A kernel gets the call",
    }.items():
        done = reference(name)
        assert done.returncode == 0 and words in done.stdout, (name, done.stdout)
    done = reference("tn_nothing")
    assert done.returncode == 1 and "no header of the SDK declares 'tn_nothing'" in done.stdout
