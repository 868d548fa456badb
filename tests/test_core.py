"""The core package, installed into an environment that has only its requirements."""

import json
import os
import subprocess
import sys
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LAB = {"jinja2", "lightning", "matplotlib", "rich", "scikit-learn", "scipy", "torchmetrics", "typer"}


def call(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without Python's paths and without triton's interpreter, which needs numpy.

    torch warns at import if there is no numpy. That warning is ignored.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "TRITON_INTERPRET")}
    environment["PYTHONWARNINGS"] = "ignore:Failed to initialize NumPy"
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd, env=environment)


def required(lines: list[str], extras: set[str]) -> list[Requirement]:
    """Return the requirements in the lines of a METADATA file that apply on this machine with these extras."""
    found = [Requirement(line) for line in lines]
    return [r for r in found if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in {"", *extras})]


def closure(lines: list[str]) -> set[str]:
    """Return the names of all distributions that these requirements need. Each must be installed here."""
    seen, left = set(), required(lines, set())
    while left:
        requirement = left.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in seen:
            seen.add(key)
            left += required(distribution(requirement.name).requires or [], requirement.extras)
    return {name for name, _ in seen}


def link(name: str, site: Path) -> None:
    """Link an installed distribution's packages, modules and metadata into another site-packages folder."""
    files = distribution(name).files
    assert files, f"{name} does not list its files"
    for part in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        if not (site / part).exists():
            (site / part).symlink_to(Path(str(distribution(name).locate_file(part))).resolve())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    made = call(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=folder)
    assert made.returncode == 0, made.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def requirements(wheel):
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist")


@pytest.fixture(scope="module")
def core(wheel, requirements, tmp_path_factory):
    """Return the ``bin`` folder of a new environment that has only our wheel and its requirements."""
    folder = tmp_path_factory.mktemp("core")
    made = call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip())
    for name in closure(requirements):
        link(name, site)
    options = ["--no-deps", "--no-index", "--quiet"]
    installed = call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return python.parent


def test_the_core_requires_torch_safetensors_and_jaxtyping_alone(requirements):
    assert {r.name for r in required(requirements, set())} == {"torch", "safetensors", "jaxtyping"}
    assert {r.name for r in required(requirements, {"lab"})} == {"torch", "safetensors", "jaxtyping", *LAB}
    assert not closure(requirements) & (LAB - {"jinja2"})  # torch itself requires jinja2


USE = """
import importlib, json, pkgutil, sys
import torch, torch.utils.flop_counter
before = set(sys.modules)
import algebranets as an
from algebranets import *  # a public name is imported when it is first used
added = {name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names

layer = an.nn.Linear(8, 8, algebra=an.H)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
x, target = torch.randn(16, 8), torch.randn(16, 8)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = (layer(x) - target).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

for info in pkgutil.walk_packages(an.__path__, "algebranets.", onerror=lambda name: None):
    if not info.name.startswith(("algebranets.lab", "algebranets.__main__")):
        try:
            importlib.import_module(info.name)
        except ModuleNotFoundError as error:  # torch for CPUs alone has no triton
            if error.name.split(".")[0] != "triton":
                raise
try:
    import algebranets.lab
except ModuleNotFoundError as error:
    answer = str(error)
print(json.dumps({"file": an.__file__, "added": sorted(added), "losses": losses, "answer": answer}))
"""


@pytest.fixture(scope="module")
def used(core):
    """Run a program that imports the core, trains a layer and tries to import the lab. Return what it prints."""
    done = call(core / "python", "-c", USE, cwd=core)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_core_alone_imports_and_trains_a_layer_in_a_plain_loop(used, core):
    assert Path(used["file"]).is_relative_to(core.parent)
    assert used["losses"] == sorted(used["losses"], reverse=True)
    assert used["losses"][-1] < used["losses"][0]


def test_importing_the_core_imports_nothing_but_what_it_requires(used):
    """Time is not measured. It depends on the modules that are imported."""
    assert set(used["added"]) <= {"algebranets", "jaxtyping", "wadler_lindig", "safetensors"}


def test_without_the_extra_the_lab_and_the_command_say_how_to_install_it(used, core):
    assert used["answer"].startswith("algebranets.lab needs ")
    assert used["answer"].endswith(": install the extra with `pip install 'algebranets[lab]'`.")
    assert all(name in used["answer"] for name in ("lightning", "matplotlib", "rich", "sklearn", "typer"))
    answer = call(core / "algebranets", "--help", cwd=core)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"error: {used['answer']}\n"
