"""Models by the entry points of a folder's `hubconf.py`, and files by their URLs.

Downloads go through urllib, to a temporary name first, and a hash that is part of a file's name
(`resnet18-f37072fd.pth`) is compared before the file gets its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

from tenon import serialization

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHUNK = 1 << 17
_directory: str | None = None


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of what was downloaded: `$TORCH_HOME/hub`, or what `set_dir` said."""
    return _directory or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the folder of downloads."""
    global _directory
    _directory = os.path.expanduser(os.fspath(d))


def __getattr__(name: str) -> Any:
    """`tqdm`, for programs that take it from here."""
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tqdm import tqdm

    return tqdm


def _bar(total: int, shown: bool) -> Any:
    """A progress bar where one is wanted and tqdm is there; else something that takes updates."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total or None, disable=not shown, unit="B", unit_scale=True)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Downloads to a file, which is replaced only by a complete one.

    hash_prefix: what the SHA-256 of the contents, in hexadecimal, must begin with.
    """
    target = Path(dst).expanduser()
    request = urllib.request.Request(url, headers={"User-Agent": "tenon.hub"})
    with urllib.request.urlopen(request) as source:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.")
        bar = _bar(int(source.headers.get("Content-Length") or 0), progress)
        digest = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as file:
                while chunk := source.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    if bar is not None:
                        bar.update(len(chunk))
            found = digest.hexdigest()
            if hash_prefix is not None and not found.startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{found}") of {url}'
                )
            os.replace(name, target)
        finally:
            if bar is not None:
                bar.close()
            if os.path.exists(name):
                os.unlink(name)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The checkpoint at a URL, from `model_dir` where it is there, downloaded otherwise."""
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    cached = folder / name
    if not cached.exists():
        print(f'Downloading: "{url}" to {cached}', file=sys.stderr)
        match = HASH_REGEX.search(name) if check_hash else None
        try:
            download_url_to_file(url, str(cached), match[1] if match else None, progress)
        except urllib.error.URLError as err:
            raise RuntimeError(
                f"load_state_dict_from_url: {url} cannot be read ({err.reason}); "
                f"put the file at {cached}"
            ) from err
    return serialization.load(cached, map_location=map_location, weights_only=weights_only)


# ---- Models by entry points ----------------------------------------------------------------------


@contextmanager
def _path_first(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _fetch(repo: str, force: bool, verbose: bool) -> str:
    """The folder of a repository `owner/name[:ref]` of GitHub, downloaded once."""
    match = re.fullmatch(r"([\w.-]+)/([\w.-]+)(?::([\w./-]+))?", repo)
    if match is None:
        raise ValueError(f"hub: expected 'owner/name[:ref]', not {repo!r}")
    owner, name, ref = match[1], match[2], match[3] or "main"
    folder = Path(get_dir()) / f"{owner}_{name}_{ref.replace('/', '_')}"
    if folder.exists() and not force:
        if verbose:
            print(f"Using cache found in {folder}", file=sys.stderr)
        return str(folder)
    Path(get_dir()).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=get_dir()) as scratch:
        archive = os.path.join(scratch, "archive.zip")
        download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", archive)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(os.path.join(scratch, "tree"))
        (top,) = Path(scratch, "tree").iterdir()
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        top.rename(folder)
    return str(folder)


def _module(repo_or_dir: str, source: str, force: bool, verbose: bool) -> ModuleType:
    if source not in ("github", "local"):
        raise ValueError(f"Unknown source: {source!r}. Allowed values: 'github' | 'local'.")
    local = source == "local"
    folder = os.path.abspath(repo_or_dir) if local else _fetch(repo_or_dir, force, verbose)
    path = os.path.join(folder, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(f"hub: there is no {path}")
    module = importlib.util.module_from_spec(spec)
    with _path_first(folder):
        spec.loader.exec_module(module)
    missing = [d for d in getattr(module, "dependencies", ()) if not importlib.util.find_spec(d)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    verbose: bool = True,
    source: str = "github",
) -> Any:
    """The entry points of a repository."""
    module = _module(github, source, force_reload, verbose)
    return [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    source: str = "github",
) -> str | None:
    """What an entry point says of itself."""
    return _entry(_module(github, source, force_reload, True), model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What the entry point `model` of a folder's `hubconf.py` returns.

    source "local": a folder; "github": `owner/name[:ref]`. This runs the code that is there.
    """
    module = _module(repo_or_dir, source, force_reload, verbose)
    folder = str(Path(module.__file__ or "").parent)
    with _path_first(folder):
        return _entry(module, model)(*args, **kwargs)
