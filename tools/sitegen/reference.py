"""The pages of the reference: every public name of the package, with its docstring.

The names come from ``__all__`` of the imported modules, so a new public name is in the reference without further work.
mkdocstrings writes the entries of our classes and functions. Names that are torch's own are listed in a table.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from algebranets.algebra import Algebra
from algebranets.lab.cli.algebras import PAPER_NAMES

#: The modules of the reference, with the titles of their pages.
MODULES = {
    "algebranets": "algebranets",
    "algebranets.algebra": "algebranets.algebra",
    "algebranets.nn": "algebranets.nn",
    "algebranets.nn.functional": "nn.functional",
    "algebranets.nn.init": "nn.init",
    "algebranets.nn.utils": "nn.utils",
    "algebranets.nn.utils.parametrizations": "nn.utils.parametrizations",
    "algebranets.models": "algebranets.models",
    "algebranets.models.language": "models.language",
    "algebranets.conversion": "algebranets.conversion",
    "algebranets.conversion.peers": "conversion.peers",
    "algebranets.product": "algebranets.product",
    "algebranets.pruning": "algebranets.pruning",
    "algebranets.accounting": "algebranets.accounting",
    "algebranets.lab.train": "lab.train",
    "algebranets.lab.recipes": "lab.recipes",
    "algebranets.lab.recipes.images": "lab.recipes.images",
    "algebranets.lab.recipes.text": "lab.recipes.text",
    "algebranets.lab.data": "lab.data",
    "algebranets.lab.report.page": "lab.report.page",
    "algebranets.lab.report.study": "lab.report.study",
    "algebranets.lab.bench": "lab.bench",
}
_TORCH_DOCS = "https://docs.pytorch.org/docs/stable"
#: The pages of torch's documentation that are not ``generated/NAME.html``; None for names that have no page.
_TORCH_PAGES: dict[str, str | None] = {
    **{
        f"torch.nn.{name}": f"generated/torch.nn.parameter.{name}.html"
        for name in ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter")
    },
    **{f"torch.nn.{name}": f"generated/torch.nn.modules.flatten.{name}.html" for name in ("Flatten", "Unflatten")},
    **dict.fromkeys(
        ("torch.nn.Container", "torch.nn.NLLLoss2d", "torch.nn.functional.celu_", "torch.nn.functional.selu_")
    ),
}


def page_of(module: str) -> str:
    """The path of a module's page below docs.

    >>> page_of("algebranets.nn.init"), page_of("algebranets")
    ('reference/nn.init.md', 'reference/algebranets.md')
    """
    return f"reference/{module.removeprefix('algebranets.')}.md"


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown text of every page."""
    for name, title in MODULES.items():
        yield page_of(name), "\n".join(_page(importlib.import_module(name), title)) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module: ``__all__``, or else the classes and functions that the module defines."""
    found = getattr(module, "__all__", None)
    if found is None:
        defined = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        found = [key for key in defined if not key.startswith("_")]
    return sorted(found, key=str.lower)


def _page(module: ModuleType, title: str) -> Iterator[str]:
    """The lines of a module's page: its docstring, an overview, our names, and torch's names."""
    yield f"# {title}\n"
    yield f"{as_markdown(inspect.cleandoc(module.__doc__ or ''))}\n"
    here, elsewhere, torchs = {}, {}, {}
    for name in public_names(module):
        thing = getattr(module, name)
        if inspect.ismodule(thing) or (_is_ours(thing) and _homes()[id(thing)] != module.__name__):
            elsewhere[name] = thing
        else:
            (here if _is_ours(thing) else torchs)[name] = thing
    if elsewhere:
        yield "| | |\n|---|---|"
        yield from (_line(module.__name__, name, thing) for name, thing in elsewhere.items())
        yield ""
    for name, thing in here.items():
        yield from _entry(module.__name__, name, thing)
    if torchs:
        yield from _torchs_own(module.__name__, torchs)


@cache
def _homes() -> dict[int, str]:
    """The module on whose page each public object has its entry, by the object's id."""
    found: dict[int, str] = {}
    for name in (*list(MODULES)[1:], *list(MODULES)[:1]):  # names of the package itself are mostly from its modules
        module = importlib.import_module(name)
        for key in public_names(module):
            found.setdefault(id(getattr(module, key)), name)
    return found


def _is_ours(thing: Any) -> bool:
    """Whether a thing is not torch's. Constants have no module of their own, and count as ours."""
    module = thing.__name__ if inspect.ismodule(thing) else getattr(thing, "__module__", None) or ""
    return module.partition(".")[0] != "torch"


def torch_page(name: str) -> str | None:
    """The address of a name in torch's documentation, or None if torch does not document it.

    >>> torch_page("torch.nn.init.normal_"), torch_page("torch.nn.NLLLoss2d")
    ('https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.normal_', None)
    """
    if name.endswith("_with_indices"):
        return None
    usual = f"nn.init.html#{name}" if name.startswith("torch.nn.init.") else f"generated/{name}.html"
    page = _TORCH_PAGES.get(name, usual)
    return page and f"{_TORCH_DOCS}/{page}"


def _line(module: str, name: str, thing: Any) -> str:
    """A row of the overview: a name that has its entry on another page, or a module."""
    anchor = f'<span id="{module}.{name}"></span>'
    if inspect.ismodule(thing) and not _is_ours(thing):
        return f"| {anchor}[`{name}`]({_TORCH_DOCS}/nn.html) | torch's own module, `{thing.__name__}` |"
    if inspect.ismodule(thing):
        if thing.__name__ not in MODULES:
            raise ValueError(
                f"{thing.__name__} is public in {module}, so it must be in MODULES of tools/sitegen/reference.py."
            )
        target, text = _file_of(thing.__name__), inspect.cleandoc(thing.__doc__ or "")
    elif isinstance(thing, Algebra):
        target = f"{_file_of(_homes()[id(thing)])}#algebranets.algebra.{name}"
        text = (
            f"The algebra {thing.name}: {PAPER_NAMES[thing.name]}, with {thing.dim} component{'s' * (thing.dim > 1)}."
        )
    else:
        target = f"{_file_of(_homes()[id(thing)])}#{_homes()[id(thing)]}.{name}"
        text = inspect.cleandoc(thing.__doc__ or "")
    return f"| {anchor}[`{name}`]({target}) | {text.partition(chr(10))[0]} |".replace("``", "`")


def _file_of(module: str) -> str:
    return Path(page_of(module)).name


def _entry(module: str, name: str, thing: Any) -> Iterator[str]:
    """The entry of one of our names: written by mkdocstrings, or here for a constant."""
    public = f"{module}.{name}"
    if inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing)):
        path = f"{thing.__module__}.{thing.__qualname__}"
        if path != public:  # mkdocstrings makes an anchor of the path alone
            yield f'<span id="{public}"></span>\n'
        yield f"::: {path}"
        yield f'    options:\n      heading: "{name}"\n      toc_label: "{name}"\n'
        return
    yield f"## `{name}` {{#{public}}}\n"
    if isinstance(thing, Algebra):
        yield f"An `Algebra` of dimension {thing.dim}.\n\n```\n{thing.table()}\n```\n"
        return
    text = _comment(module, name)
    if not text:
        raise ValueError(f"{public} must have a description: a comment that begins with #: above its definition.")
    yield f"{as_markdown(text)}\n"


def _comment(module: str, name: str) -> str:
    """The comment of a constant: the lines that begin with ``#:`` above its definition, in the module or below it."""
    here = Path(inspect.getfile(importlib.import_module(module)))
    files = [here, *sorted(here.parent.rglob("*.py"))] if here.name == "__init__.py" else [here]
    for file in files:
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(rf"{name}\b.*=", line) and (text := comment_above(lines, number)):
                return text
    return ""


def comment_above(lines: list[str], number: int) -> str:
    """The lines that begin with ``#:`` directly above a line, as one paragraph.

    >>> comment_above(["#: The answer,", "#: in short.", "N = 42"], 2)
    'The answer, in short.'

    Args:
        lines: The lines of a file, without indentation.
        number: The index of the line.
    """
    found: list[str] = []
    while number > 0 and lines[number - 1].startswith("#:"):
        number -= 1
        found.insert(0, lines[number].removeprefix("#:").strip())
    return " ".join(found)


def _torchs_own(module: str, names: dict[str, Any]) -> Iterator[str]:
    yield "## torch's own {#torchs-own}\n"
    yield "These names are torch's, passed on unchanged, because they keep tuples whole.\n"
    there = module.replace("algebranets", "torch", 1)
    for name in names:
        page = torch_page(f"{there}.{name}")
        yield f'- <span id="{module}.{name}"></span>' + (f"[`{name}`]({page})" if page else f"`{name}`")
    yield ""


def as_markdown(text: str) -> str:
    """A docstring's text as Markdown, with its doctests in code blocks.

    >>> as_markdown("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(_fenced(part) if part.lstrip().startswith(">>>") else part for part in paragraphs)


def _fenced(doctest: str) -> str:
    indent = doctest[: len(doctest) - len(doctest.lstrip())]
    lines = (line.replace("<BLANKLINE>", "") for line in doctest.splitlines())
    lines = (re.sub(r"\s*# doctest: .*", "", line) for line in lines)
    return "\n".join([f"{indent}```pycon", *lines, f"{indent}```"])
