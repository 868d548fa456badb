"""Every Python block in README.md and docs/ runs, and the guides do what they promise.

A Python block in a page is one of two kinds:

- A block that starts with ``>>>`` is a doctest. ``pytest --doctest-glob='*.md'`` runs it, as pyproject.toml says.
- Any other block is code to copy and paste. This file runs these blocks, page by page: in order, in one namespace and
  in an empty folder. A ``text`` block right after such a block shows what it prints. Words and whole numbers must be
  exact, and a number with a decimal point may differ by 5 %.

The pages in docs/coming_from need other libraries, so tests/test_from_peers.py runs their blocks.
"""

import io
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement

from test_from_peers import DOCS as PEER_PAGES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PYTHON = {"python", "py", "python3", "pycon"}


class Block(NamedTuple):
    language: str
    text: str
    line: int
    follows: int | None  # the line of the block right before it, with nothing but blank lines between them


def blocks(page: Path) -> list[Block]:
    """The fenced code blocks of a page."""
    found: list[Block] = []
    last_line, last_end = None, None
    text = page.read_text()
    for fence in re.finditer(r"^( *)```([\w+-]*)[^\n]*\n(.*?)^\1``` *$", text, flags=re.S | re.M):
        line = text.count("\n", 0, fence.start()) + 1
        adjacent = last_end is not None and not text[last_end : fence.start()].strip()
        found.append(Block(fence[2], fence[3], line, last_line if adjacent else None))
        last_line, last_end = line, fence.end()
    return found


def is_doctest(block: Block) -> bool:
    return block.language in PYTHON and block.text.startswith(">>>")


def is_code(block: Block) -> bool:
    return block.language in PYTHON and not block.text.startswith(">>>")


#: Pages whose code this file runs in one process. gpus.md has a script that torchrun runs in two.
CODE_PAGES = [
    page for page in PAGES
    if any(map(is_code, blocks(page))) and page.parent != PEER_PAGES and page.name not in ("resnet18.md", "gpus.md")
]  # fmt: skip


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, object]:
    """Run the code of a page in order in ``folder``, compare what it prints, and return its variables."""
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    printed: dict[int, str] = {}
    for block in blocks(page):
        if is_code(block):
            source = "\n" * block.line + block.text  # so that a traceback has the line numbers of the page
            with redirect_stdout(io.StringIO()) as output:
                exec(compile(source, str(page), "exec"), names)
            printed[block.line] = output.getvalue()
        elif block.language == "text" and block.follows in printed:
            assert_same_text(printed[block.follows], block.text, f"{page.name}, line {block.line}")
    return names


def assert_same_text(printed: str, expected: str, where: str) -> None:
    """Check that words and whole numbers are equal, and numbers with a decimal point to 5 %."""
    decimal = re.compile(r"\d+\.\d+")
    shapes = [" ".join(decimal.sub("#", text).split()) for text in (printed, expected)]
    assert shapes[0] == shapes[1], f"{where}: the page shows\n{expected}\nbut the code prints\n{printed}"
    for got, shown in zip(decimal.findall(printed), decimal.findall(expected), strict=True):
        assert float(got) == pytest.approx(float(shown), rel=0.05), f"{where}: {shown} on the page, {got} printed"


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_as_written(page, monkeypatch, tmp_path):
    run_page(page, monkeypatch, tmp_path)


def test_every_python_block_is_run_by_some_test():
    """Doctest skips nothing, finds every prompt, and no code hides in a block without a language."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-glob='*.md'" in options["addopts"]
    assert {"docs", "README.md"} <= set(options["testpaths"])
    run_elsewhere = {ROOT / "docs/guides/resnet18.md", ROOT / "docs/guides/gpus.md"}
    run_elsewhere |= {PEER_PAGES / f"{package}.md" for package in ("complextorch", "cliffordlayers", "speechbrain")}
    for page in PAGES:
        for block in blocks(page):
            where = f"{page.relative_to(ROOT)}, line {block.line}"
            assert "doctest: +SKIP" not in block.text, f"{where}: nothing runs this example"
            if is_code(block):
                assert page in {*CODE_PAGES, *run_elsewhere}, where
                assert not re.search(r"^>>> ", block.text, flags=re.M), f"{where}: begin the block with >>>"
            elif not is_doctest(block):
                looks_like_python = re.search(r"^\s*(>>> |import \w|from \w+ import )", block.text, flags=re.M)
                assert not looks_like_python, f"{where}: name the language, python, so that it is run"


@pytest.mark.slow
def test_one_page_leads_from_torchvision_to_an_exported_resnet18(monkeypatch, tmp_path):
    """Convert, train, evaluate, export, run with onnxruntime: the page's code, as written."""
    names = run_page(ROOT / "docs/guides/resnet18.md", monkeypatch, tmp_path)
    assert names["accuracy"] > 0.9
    assert {"resnet18-M2R.onnx", "resnet18-M2R.pt2"} <= {path.name for path in tmp_path.iterdir()}


def test_a_tutorial_installs_what_it_imports():
    """The extras in the page's pip command contain every library that its code imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = packages_distributions()
    for page in (ROOT / "docs/start.md", ROOT / "docs/guides/resnet18.md"):
        (extras,) = re.findall(r"^pip install '\./algebranets\[([\w,]+)\]'$", page.read_text(), flags=re.M)
        lines = [*project["dependencies"]]
        for extra in extras.split(","):
            lines += project["optional-dependencies"][extra]
        installed = {Requirement(line).name.lower() for line in lines}
        code = "".join(block.text for block in blocks(page) if is_code(block))
        imported = set(re.findall(r"^(?:import|from) (\w+)", code, flags=re.M)) - {"algebranets"}
        assert {"torch", "sklearn"} <= imported
        for name in imported:
            assert installed & {each.lower() for each in distributions[name]}, f"{page.name} does not install {name}"


@pytest.mark.slow
def test_the_script_for_many_gpus_runs_under_torchrun_with_two_processes(tmp_path):
    (script,) = [block.text for block in blocks(ROOT / "docs/guides/gpus.md") if is_code(block)]
    (tmp_path / "train_ddp.py").write_text(script)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, "train_ddp.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "model.pt").exists()
    first, last = (float(loss) for loss in re.findall(r"step \d+: loss (\S+)", done.stdout))
    assert last < first


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_there_are_three_notebooks_and_they_are_stored_without_outputs():
    assert [path.stem for path in NOTEBOOKS] == ["convert_and_finetune", "first_algebranet", "signals"]
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert notebook.cells[0].cell_type == "markdown"
        for cell in notebook.cells:
            if cell.cell_type == "code":
                assert cell.outputs == [], path.name
                assert cell.execution_count is None, path.name


def test_every_guide_is_reached_from_another_page():
    """By a link on another page of the docs, not counting the list of all files."""
    for page in sorted((ROOT / "docs/guides").glob("*.md")):
        others = [other for other in PAGES if other != page and other.name not in ("tree.md", "README.md")]
        assert any(re.search(rf"\]\((?:[\w./]*/)?{page.name}[)#]", other.read_text()) for other in others), page.name
