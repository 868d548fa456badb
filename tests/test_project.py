"""The project itself: its README, its imports, its examples."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from pathlib import Path

import algebranets as an

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_tree_in_the_readme_is_true():
    (tree,) = re.findall(r"```\n(src/algebranets/\n.*?)```", README, flags=re.S)
    printed, folders = set(), []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders = [*folders[:depth], name.rstrip("/")]
        if not name.endswith("/"):
            printed.add("/".join(folders))
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "docs", "examples", "tools", "benchmarks", "results")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there == printed


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text()
    command = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest -n 2"
    assert command in README
    assert command in script


def test_importing_the_package_stays_light():
    """What torch itself brings is torch's, and so is what its FLOP counter brings; we add none of these."""
    code = (
        "import sys, torch, torch.utils.flop_counter; before = set(sys.modules)\n"
        "import algebranets\n"
        "heavy = ('lightning', 'matplotlib', 'triton', 'torchvision', 'typer', 'rich', 'torch._inductor')\n"
        "print([m for m in heavy if m in set(sys.modules) - before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_public_surface_is_short_and_there():
    assert len(an.__all__) <= 20
    assert all(hasattr(an, name) for name in an.__all__)
    assert all(hasattr(an.nn, name) for name in an.nn.__all__)
    assert f"version: {an.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_example_runs():
    command = [sys.executable, str(ROOT / "examples" / "char_lm.py"), "--steps", "2", "--characters", "5"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    real, ours = (line for line in result.stdout.splitlines() if "parameters" in line)
    assert real.split()[0] == "R:"
    assert ours.split()[0] == "M2R:"
    parameters = [int(line.split()[1].replace(",", "")) for line in (real, ours)]
    assert parameters[1] < 0.4 * parameters[0]
    assert result.stdout.count("The ") == 2


def test_every_annotation_means_something():
    """A shape that lost its quotes is a name nobody defined, and no checker says so."""
    resolved = 0
    for info in pkgutil.walk_packages(an.__path__, "algebranets."):
        module = importlib.import_module(info.name)
        if info.name.startswith("algebranets.lab.cli"):  # imports torch for type checkers only
            continue
        for holder in (module, *(c for c in vars(module).values() if inspect.isclass(c))):
            for function in vars(holder).values():
                if inspect.isfunction(function) and function.__module__ == info.name:
                    typing.get_type_hints(function)
                    resolved += 1
    assert resolved > 200


def test_shapes_in_signatures_hold_while_every_layer_runs():
    """jaxtyping checks each annotated argument and result, in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from jaxtyping import install_import_hook\n"
        "with install_import_hook('algebranets', 'beartype.beartype'):\n"
        "    import algebranets\n"
        "import zoo\n"
        "from conftest import ALGEBRAS\n"
        "runs = 0\n"
        "for algebra in ALGEBRAS:\n"
        "    for example in zoo.LAYERS:\n"
        "        example.make(algebra)(*example.feed(algebra)); runs += 1\n"
        "import torch\n"
        "from algebranets import H, product\n"
        "try:\n"
        "    product.reference.linear(torch.zeros(2, 4, dtype=torch.int), torch.zeros(4, 1), None, H)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, runs)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.startswith("TypeCheckError")
