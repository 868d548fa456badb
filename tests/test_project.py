"""The project itself: its README and docs, its imports, its examples."""

import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import idea
import pytest
import torch
import typer
from sitegen import tree

import algebranets as an
from algebranets.lab.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CURRENT_PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names old files


def test_the_tree_is_what_the_generator_writes():
    assert tree.PAGE.read_text() == tree.render(), "run: python tools/write_docs.py"


def test_the_tree_lists_every_file():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    if not listed:
        pytest.skip("not a checkout")
    printed = set()
    for block in re.findall(r"```\n(.*?)```", tree.PAGE.read_text(), flags=re.S):
        folders: list[str] = []
        for line in block.splitlines():
            depth = (len(line) - len(line.lstrip())) // 2
            name = line.split()[0]
            folders = [*folders[:depth], name.rstrip("/")]
            if not name.endswith("/"):
                printed.add(Path(*folders).as_posix())
    assert printed == {name for name in listed if (ROOT / name).exists() and not name.endswith(tree.NOT_LISTED)}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 180


def test_badges_say_what_the_project_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d", line)]
    torch = next(line.partition(">=")[2] for line in project["dependencies"] if line.startswith("torch"))
    assert f"badge/python-{pythons[0]}_to_{pythons[-1]}-" in README
    assert f"badge/torch-%E2%89%A5_{torch}-" in README
    assert f"badge/license-{project['license'].replace('-', '--')}-" in README
    assert (ROOT / ".github" / "workflows" / "tests.yml").is_file()  # the badge of the tests names it


def test_the_readmes_picture_is_drawn_from_the_tables():
    assert idea.PAGE.read_text() == idea.render(), "run: python tools/idea.py"
    assert "(docs/assets/idea.svg)" in README


@pytest.mark.parametrize("algebra", [an.R, an.C, an.H, an.M2R], ids=str)
def test_the_picture_shows_the_matrix_of_a_layer(algebra):
    layer = an.nn.Linear(4, 4, algebra=algebra, bias=False)
    numbers = torch.arange(1.0, 1 + 16 / algebra.dim).view(4 // algebra.dim, 4 // algebra.dim, algebra.dim)
    layer.weight_tuples = numbers.permute(2, 0, 1)
    assert layer(torch.eye(4)).T.tolist() == idea.matrix(algebra)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(file), f"{page.name} links to {target}, but there is no such heading"


@pytest.mark.parametrize("page", CURRENT_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_source_files_named_in_the_docs_exist(page):
    roots = (ROOT, ROOT / "src/algebranets", ROOT / "src/algebranets/lab")
    named = re.findall(r"`((?:[\w.]+/)+[\w-]+\.(?:py|jsonl|svg|toml))`", _prose(page))
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", CURRENT_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_the_docs_exist_with_their_options(page):
    text = page.read_text().replace("\\\n", " ")
    commands = typer.main.get_command(app)
    for line in re.findall(r"(?:^|`|-m |\$ |bin/)algebranets ([a-z][^`\n]*)", text, flags=re.M):
        command, words = commands, shlex.split(line, comments=True)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {"--help", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert not hasattr(command, "commands") or not words, f"there is no command: algebranets {line}"
        assert given <= known, f"algebranets {line}: there is no option {', '.join(given - known)}"


def _prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text()
    command = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest -n 2"
    assert command in README
    lines = f"{command} --dist worksteal -m 'not gpu'".split(" && ")  # without -m, slow tests are left out
    assert [line for line in script.splitlines() if line in lines] == lines
    assert "python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[lab]' && algebranets demo" in README


def test_importing_the_package_stays_light():
    """The package must not import these modules. Those that torch and its FLOP counter import do not count."""
    code = (
        "import sys, torch, torch.utils.flop_counter; before = set(sys.modules)\n"
        "import algebranets; [getattr(algebranets, name) for name in algebranets.__all__]\n"
        "heavy = ('lightning', 'matplotlib', 'triton', 'torchvision', 'typer', 'rich', 'torch._inductor')\n"
        "print([m for m in heavy if m in set(sys.modules) - before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_public_surface_is_short_and_there():
    assert len(an.__all__) <= 31
    assert all(hasattr(an, name) for name in an.__all__)
    assert all(hasattr(an.nn, name) for name in an.nn.__all__)


@pytest.mark.parametrize("name", ["", ".algebra", ".nn", ".nn.init", ".nn.utils", ".models", ".pruning", ".accounting"])
def test_public_docstrings_explain_every_argument_and_show_an_example(name):
    module = importlib.import_module(f"algebranets{name}")
    lacking = {}
    for key in getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")]):
        thing = getattr(module, key)
        is_ours = getattr(thing, "__module__", "").startswith("algebranets")
        if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not is_ours:
            continue
        arguments = set(inspect.signature(thing).parameters)
        text = inspect.cleandoc(thing.__doc__ or "")
        _, _, section = text.partition("\nArgs:\n")
        described = re.findall(r"^    (\w+(?:, \w+)*): ", re.split(r"\n(?=\S)", section)[0], flags=re.M)
        missing = arguments - {argument for line in described for argument in line.split(", ")}
        if arguments and (missing or ">>>" not in text):
            lacking[key] = sorted(missing) or "an example"
    assert not lacking


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
    """A shape without its quotes is an undefined name, which no checker reports."""
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


@pytest.mark.slow
def test_shapes_in_signatures_hold_while_every_layer_runs():
    """jaxtyping checks each annotated argument and result, in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from jaxtyping import install_import_hook\n"
        "with install_import_hook('algebranets', 'beartype.beartype'):\n"
        "    from algebranets import *  # imports every part now; a name that is first used later escapes the hook\n"
        "import zoo\n"
        "from algebranets.algebra import direct_sum\n"
        "runs = 0\n"
        "for algebra in (R, H, M2R, direct_sum(C, M2R)):\n"
        "    for example in zoo.LAYERS:\n"
        "        example.make(algebra)(*example.feed(algebra)); runs += 1\n"
        "import torch\n"
        "try:\n"
        "    product.reference.linear(torch.zeros(2, 4, dtype=torch.int), torch.zeros(4, 1), None, H)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, runs)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.startswith("TypeCheckError")
