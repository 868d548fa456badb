"""The structure of the source: small files, short functions, few arguments, no circular imports."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from torch import nn

SOURCE = Path(__file__).parent.parent / "src" / "algebranets"
FILES = sorted(SOURCE.rglob("*.py"))

#: Functions whose arguments torch determines: constructors, forward and backward, and FLOP formulas of operators.
MIRRORS = ("__init__", "forward", "backward", "flops", "flops_backward")


def functions(file: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(file.read_text())
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def is_operator(function: ast.FunctionDef) -> bool:
    return any("custom_op" in ast.unparse(decorator) or "register_fake" in ast.unparse(decorator)
               for decorator in function.decorator_list)  # fmt: skip


def num_required(function: ast.FunctionDef) -> int:
    """Return the number of parameters without a default, except ``self``, ``cls`` and ``ctx``."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    required = positional[: len(positional) - len(given.defaults)]
    named = [one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return len([one for one in (*required, *named) if one.arg not in ("self", "cls", "ctx")])


def test_files_are_small():
    lengths = {file.relative_to(SOURCE).as_posix(): len(file.read_text().splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
    assert statistics.median(lengths.values()) <= 120


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.name != "kernel.py"], ids=lambda file: file.relative_to(SOURCE).as_posix()
)
def test_functions_are_short_and_take_few_arguments(file):
    """Kernels are not checked: each is one launch, so they are long and take many arguments."""
    for function in functions(file):
        assert function.end_lineno - function.lineno < 60, function.name
        if function.name not in MIRRORS and not is_operator(function) and not is_torchs(function):
            assert num_required(function) <= 6, function.name


def is_torchs(function: ast.FunctionDef) -> bool:
    """Whether a method of torch's modules has this name, and so determines the arguments."""
    return any(hasattr(module, function.name) for module in (nn.Module, nn.MultiheadAttention, nn.RNNBase))


def test_no_imports_run_in_a_circle():
    graph = grimp.build_graph("algebranets")
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            assert graph.find_shortest_chain(importer=other, imported=module) is None, f"{module} <-> {other}"


def test_only_kernels_import_triton():
    for file in FILES:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert file.name == "kernel.py" or not any(name.split(".")[0] == "triton" for name in names), file
