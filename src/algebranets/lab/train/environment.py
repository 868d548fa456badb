"""The environment of a run: commit, versions and device."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

import torch

import algebranets

PACKAGES = ("torch", "lightning", "torchmetrics", "triton")


def environment(device: torch.device | str) -> dict[str, str]:
    """The commit, versions and device name that ``environment.json`` records."""
    return {
        "algebranets": algebranets.__version__,
        "commit": commit(),
        "device": device_name(device),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in PACKAGES},
    }


def device_name(device: torch.device | str) -> str:
    """The name of a device, as its driver or the system gives it.

    >>> device_name("cpu")  # doctest: +ELLIPSIS
    '..., ... thread...'
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()}, {threads} thread{'s' * (threads > 1)}"


def commit() -> str:
    """The commit of the git checkout that contains this package, or "unknown"."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # fails if the repository around this file is not ours
        return _git("describe", "--always", "--dirty", "--abbrev=7")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
