"""The page docs/contributing/tree.md: every file of the project with one line on what it is.

The line is the first line of the docstring for a Python file, the first comment for a template or a YAML file, and the
first heading for a Markdown file. For a file of rows it is computed from the rows. Other files have their line in
``OTHERS``. A file without a line is an error, and so is a line in ``OTHERS`` without a file.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "contributing" / "tree.md"
#: The folders of the page, with the titles of their sections. Of the root, only the files are listed.
FOLDERS = {
    ".": "The root",
    **{
        name: name
        for name in (
            "src/algebranets", "tests", "docs", "examples", "tools", "benchmarks", "results", "zoo", ".github", ".ci",
        )
    },
}  # fmt: skip
#: The endings of files that are not listed: the weights of the zoo, which the sdist does not have.
NOT_LISTED = (".safetensors",)
INTRODUCTION = """\
# Every file, in one line

`python tools/write_docs.py` writes this page from the first lines of the files; do not edit it by hand. The page leaves
out the weights in `zoo/` (`.safetensors`).
"""
#: The lines of files that cannot describe themselves.
OTHERS = {
    ".ci/run": "What CI runs on a clean clone: installation, tests and checks of the code.",
    ".github/ISSUE_TEMPLATE/bug.yml": "Form of a bug report.",
    ".github/ISSUE_TEMPLATE/config.yml": "Links beside the forms of issues.",
    ".github/ISSUE_TEMPLATE/feature.yml": "Form of a feature request.",
    ".github/ISSUE_TEMPLATE/question.yml": "Form of a question.",
    ".github/PULL_REQUEST_TEMPLATE.md": "Questions that a pull request answers.",
    ".github/dependabot.yml": "Dependabot keeps the versions of the workflows' actions up to date.",
    ".gitignore": "Files that git ignores.",
    "CITATION.cff": "How to cite the software and the paper.",
    "LICENSE": "Apache License 2.0.",
    "README.md": "The front page of the project.",
    "docs/assets/idea.svg": "Figure: the weights of a layer over R, C, H and M2(R).",
    "docs/figures/cifar10-pruned.svg": "Figure: accuracy against sparsity, parameters and multiply-adds left.",
    "docs/figures/speed-h200.svg": "Figure: speed-ups measured on an H200.",
    "docs/figures/transformer_xl-short.svg": "Figure: bits per character while training, by characters and by minutes.",
    "docs/figures/transformer_xl-small.svg": "Figure: bits per character against parameters and multiply-adds.",
    "docs/stylesheets/site.css": "Styles of the site.",
    "pyproject.toml": "The package's metadata, its requirements, and the settings of its tools.",
    "src/algebranets/lab/recorded.json": "Counts that algebranets recipes and algebranets paper print.",
    "src/algebranets/lab/report/templates/base.html": "Template of a page: its head and its frame.",
    "src/algebranets/lab/report/templates/index.html": "Template of the page that lists several reports.",
    "src/algebranets/lab/report/templates/macros.html": "Parts that the page templates share.",
    "src/algebranets/lab/report/templates/page.html": "Template of the report page.",
    "src/algebranets/lab/report/templates/style.css": "Styles of the report page.",
    "src/algebranets/py.typed": "Marker for type checkers: the package has type annotations.",
}


def render() -> str:
    """The text of the page."""
    missing = sorted(name for name in OTHERS if not (ROOT / name).is_file())
    if missing:
        raise ValueError(f"these files are in OTHERS of tools/sitegen/tree.py but do not exist: {', '.join(missing)}.")
    return "\n".join([INTRODUCTION, *(section(folder) for folder in FOLDERS)])


def section(folder: str) -> str:
    """A heading and the tree of one folder, in a code block."""
    rows = [("  " + path.name, describe(path)) for path in root_files()] if folder == "." else tree(ROOT / folder)
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{line}".rstrip() for name, line in rows]
    return "\n".join([f"## {FOLDERS[folder]}", "", "```", f"{folder}/", *lines, "```", ""])


def root_files() -> list[Path]:
    """The files of the root folder: Markdown, YAML and text files, and those in ``OTHERS``."""
    found = [path for pattern in ("*.md", "*.yml", ".*.yaml", "*.txt") for path in ROOT.glob(pattern)]
    return sorted({*found, *(ROOT / name for name in OTHERS if "/" not in name)})


def tree(folder: Path, depth: int = 1) -> list[tuple[str, str]]:
    """(indented name, line) of everything in a folder: its files first, then its folders."""
    rows = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.name == "__pycache__" or path.name.startswith(".") or path.suffix in NOT_LISTED:
            continue
        if path.is_file():
            rows.append(("  " * depth + path.name, describe(path)))
        elif inside := tree(path, depth + 1):
            rows += [("  " * depth + path.name + "/", ""), *inside]
    return rows


def describe(path: Path) -> str:
    """Describe a file in one line."""
    name = path.relative_to(ROOT).as_posix()
    if path == PAGE:
        return heading(INTRODUCTION)
    if name in OTHERS:
        return OTHERS[name]
    line = ""
    if path.suffix == ".py":
        line = summary(path.read_text(), name)
    elif path.suffix == ".md":
        line = heading(path.read_text())
    elif path.suffix == ".ipynb":
        line = heading("".join(json.loads(path.read_text())["cells"][0]["source"]))
    elif path.suffix in (".j2", ".html") and path.read_text().startswith("{#"):
        line = comment(path.read_text())
    elif path.suffix in (".yml", ".yaml", ".txt"):
        line = hash_comment(path.read_text())
    elif path.suffix == ".jsonl":
        line = rows_in(path)
    if not line:
        raise ValueError(
            f"{name} does not say what it is. Give it a docstring, or a line in OTHERS of tools/sitegen/tree.py."
        )
    return line


def summary(source: str, name: str) -> str:
    """The first line of a module's docstring, as plain text."""
    first, *rest = (ast.get_docstring(ast.parse(source)) or "").split("\n")
    if rest and rest[0]:
        raise ValueError(f"the docstring of {name} must begin with one line and a blank one, got {first!r}.")
    return first.replace("`", "")


def heading(text: str) -> str:
    """The first heading of a Markdown text."""
    return next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "")


def comment(text: str) -> str:
    """The comment in the first line of a Jinja template."""
    first = text.partition("\n")[0]
    return first.removeprefix("{#").removesuffix("#}").strip() if first.startswith("{#") else ""


def hash_comment(text: str) -> str:
    """The comment in the first line of a file whose comments begin with a hash sign."""
    return text.partition("\n")[0].removeprefix("# ").replace("`", "") if text.startswith("# ") else ""


def rows_in(path: Path) -> str:
    """Describe a file of rows: finished runs of recipes, or measurements of `algebranets bench`."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]

    def values(key: str) -> str:
        return ", ".join(sorted({str(row[key]) for row in rows}))

    if "recipe" in rows[0]:
        devices = ", ".join(sorted({row["environment"]["device"] for row in rows}))
        return f"{len(rows)} runs of {values('recipe')} over {values('algebra')}; {devices}."
    return f"{len(rows)} rows: {values('op')} over {values('algebra')}; {values('dtype')}; {values('device')}."
