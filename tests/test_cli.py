"""The command line: its output, its errors and its exit codes."""

import io
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

import algebranets
from algebranets.algebra import CATALOGUE, M2R
from algebranets.lab.cli import app, progress, terminal
from algebranets.lab.cli.errors import Commands
from algebranets.lab.cli.terminal import read_settings
from algebranets.lab.cli.training import show_warnings
from algebranets.models import publish
from algebranets.pruning import Pruner
from boxes import message_in_box, without_spaces

#: What erases a line of a terminal and moves the cursor to it.
ERASED = "\x1b[1A\x1b[2K"


def run(*arguments, **environment):
    return CliRunner(env={"NO_COLOR": "1", **environment}).invoke(app, list(map(str, arguments)))


def test_version_is_the_packages():
    assert run("--version").stdout.strip() == f"algebranets {algebranets.__version__}"


def test_algebras_prints_table_1():
    result = run("algebras")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.split()}
    for algebra in CATALOGUE.values():
        assert f"{algebra.multiplies} : {algebra.values_loaded}" in rows[algebra.name]
    assert rows["DUAL"].split()[3:5] == ["2", "-"]
    assert "2 copies of 2 x 2" in rows["M2R"]


def test_algebras_fits_a_terminal_of_80_columns():
    result = run("algebras")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout


def test_algebra_prints_one(tmp_path):
    result = run("algebra", "DUAL")
    assert result.exit_code == 0
    assert "b | b 0" in result.stdout
    assert "1 of them by structural zeros" in " ".join(result.stdout.split())
    file = tmp_path / "split.toml"
    file.write_text('table = [["a", "b"], ["b", "a"]]')
    result = run("algebra", str(file))
    assert "split | a b" in result.stdout
    assert "commutative" in result.stdout
    assert run("algebra", "clifford(5,0)").exit_code == 0
    assert "M4(C): 256 multiplies instead of 1024" in run("algebra", "clifford(4,1)").stdout
    assert "none" in run("algebra", "CROSS").stdout


def test_algebras_are_compared_by_their_parts():
    rows = [
        line.split() for line in run("algebras", "clifford(2,0)", "H*H", "cyclic(8)", "DUAL", "M9R").stdout.splitlines()
    ]
    for name, *expected in (
        ("clifford(2,0,0)", "4", "4", "x", "4", "16", "M2(R)", "8"),
        ("H*H", "16", "16", "x", "16", "256", "M4(R)", "64"),
        ("cyclic(8)", "8", "8", "x", "8", "64", "2", "R", "+", "3", "C", "14"),
    ):
        assert [name, *expected] in rows
    assert any(row[:1] == ["DUAL"] and row[-1] == "-" for row in rows)
    assert any(row[:1] == ["M9R"] and "not" in row for row in rows)  # the search would take too long


@pytest.mark.parametrize(("name", "own"), [("quaternion", "H"), ("Cl(2, 0)", "clifford(2,0,0)"), ("M_2(R)", "M2R")])
def test_commands_take_common_names_of_algebras(name, own):
    assert run("algebra", name).stdout == run("algebra", own).stdout
    counted = [json.loads(run("profile", "gru_lm", "--algebra", x, "--json").stdout) for x in (name, own)]
    assert counted[0] == counted[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algebra", "M2Q"], "Did you mean 'M2R'?"),
        (["algebra", "missing.toml"], "cannot be read"),
        (["bench", "layers", "--op", "lstm"], "--op must be one of linear, conv2d, gru"),
        (["bench", "layers", "--dtype", "int8"], "--dtype must be one of float32"),
        (["bench", "layers", "--dtype", "float8_e4m3fn"], "--dtype must be one of float32"),
        (["bench", "zeros", "--device", "tpu"], "--device must be one of cpu, cuda"),
        (["bench", "attention"], "torch sees no CUDA device here"),
        (["bench", "layers", "--algebra", "Q"], "unknown algebra 'Q'"),
        (["profile", "resnet"], "got 'resnet'. Did you mean"),
        (["profile", "resnet50", "--algebra", "M4R", "--width", "0.05"], "the nearest width that works is 0.125"),
        (["profile", "transformer_xl", "--algebra", "M3R", "--set", "ff_size=1539"], "nearest that works is 504"),
        (["profile", "transformer_xl", "--set", "num_layers=many"], "num_layers must be a whole number; got 'many'"),
        (["profile", "gru_lm", "--width", "2"], "gru_lm has no option 'width'"),
        (["profile", "gru_lm", "--set", "hidden_size"], "--set must be NAME=VALUE"),
        (["profile", "gru_lm", "--image-size", "8"], "gru_lm takes no image"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in message_in_box(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algebra", "matrix(2,3)"], "matrix"),
        (["algebra", ""], "unknown algebra ''"),
        (["profile", "gru_lm", "--set", "hidden_size={[]}"], "hidden_size must be a whole number; got '{[]}'"),
        (["profile", "gru_lm", "--set", f"hidden_size={'-' * 3000}1"], "hidden_size must be a whole number; got '---"),
        (["profile", "gru_lm", "--set", f"hidden_size={'(' * 3000}"], "hidden_size must be a whole number; got '((("),
        (["profile", "gru_lm", "--set", f"hidden_size={'9' * 5000}"], "hidden_size must be a whole number; got '999"),
        (["profile", "gru_lm", "--set", f"hidden_size=0x{'f' * 5000}"], "a whole number must lie between"),
        (["profile", "gru_lm", "--set", f"hidden_size={2**63}"], "a whole number must lie between"),
        (["profile", "cifar_resnet", "--image-size", "9" * 30], "--image-size"),
        (["report", "nowhere[/b]"], "nowhere[/b]"),
        (["sweep", "digits", "--seeds", "9" * 30], "--seeds"),
        (["train", "digits", "--seed", "9" * 30], "--seed"),
        (["bench", "figure", "/dev/null", "--out", "."], "there must be rows to draw"),
    ],
)
def test_odd_arguments_are_explained(arguments, message):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert without_spaces(message) in without_spaces(message_in_box(result.stderr))
    assert "unexpected" not in result.stderr


@pytest.mark.parametrize("width", ["1e6", "1e308", "nan", "inf", "-inf", "0", "-1", "1e-300", "9" * 30])
def test_a_width_that_no_network_can_have_is_explained(width):
    result = run("profile", "resnet50", "--width", width)
    assert result.exit_code == 2
    assert "unexpected" not in result.output


def test_a_folder_in_the_place_of_a_file_is_named_and_left_alone(tmp_path):
    options = {"hidden_size": 16, "num_readouts": 1}
    model = algebranets.models.create("gru_lm", algebra="M2R", **options)
    Pruner(model, 0.9).finish()
    publish(model, "gru_lm", M2R, options, tmp_path / "pruned.safetensors")
    (tmp_path / "folder").mkdir()
    result = run("sparse", tmp_path / "pruned.safetensors", "--out", tmp_path / "folder")
    assert (result.exit_code, result.stdout) == (2, "")
    assert without_spaces(message_in_box(result.stderr)) == f"{tmp_path / 'folder'}:Isadirectory."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pruned.safetensors"]


def test_settings_are_literals_or_text():
    given = ["a=1", "b=1e3", "c=true", "d=(0.5, 0.9)", "e=tuple", "f={[]}", f"g={'-' * 3000}1", "h=", "i=x=y"]
    read = read_settings(given)
    assert (read["a"], read["b"], read["c"], read["d"], read["e"]) == (1, 1000.0, True, (0.5, 0.9), "tuple")
    assert (read["f"], read["g"], read["h"], read["i"]) == ("{[]}", "-" * 3000 + "1", "", "x=y")


# How commands end ----------------------------------------------------------------------------------------------------


def ending(end, **environment):
    """Run a command that calls ``end``, with the error handling that all commands have."""
    commands = typer.Typer(cls=Commands)
    commands.command("end")(lambda: end())
    commands.command("other")(lambda: None)
    return CliRunner(env={"NO_COLOR": "1", "COLUMNS": "40", **environment}).invoke(commands, ["end"])


def raising(error):
    def end():
        raise error

    return end


def endless():
    return endless()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("width must be 1; got 2. Take 1."), "width must be 1; got 2. Take 1."),
        (ValueError("[/b] of\ntwo\x1b[31m lines"), "[/b] of two\\x1b[31m lines"),
        (ValueError("a path " + "x" * 200), "a path " + "x" * 200),
        (FileNotFoundError(2, "No such file or directory", "a/file"), "a/file: No such file or directory."),
        (OSError("the disk is gone"), "the disk is gone"),
    ],
    ids=str,
)
def test_an_error_that_explains_itself_is_printed_as_it_is_in_a_box(error, text):
    result = ending(raising(error))
    assert (result.exit_code, result.stdout) == (2, "")
    assert without_spaces(message_in_box(result.stderr)) == without_spaces(text)
    assert {len(line) for line in result.stderr.splitlines()} == {40}


@pytest.mark.parametrize(
    "end",
    [
        raising(KeyError("x")), raising(RuntimeError("a\nb\n")), raising(ZeroDivisionError()), raising(ValueError()),
        raising(AssertionError()), endless, lambda: b"\xff".decode(), lambda: json.loads("{"), lambda: [][0],
    ],
    ids=["KeyError", "RuntimeError", "ZeroDivisionError", "ValueError", "AssertionError", "RecursionError",
         "UnicodeDecodeError", "JSONDecodeError", "IndexError"],
)  # fmt: skip
def test_any_other_error_says_that_it_may_be_a_bug(end, request):
    name = request.node.callspec.id
    result = ending(end)
    assert (result.exit_code, result.stdout) == (2, "")
    text = message_in_box(result.stderr)
    assert text.startswith(f"unexpected {name}: ")
    assert text.endswith("may be a bug in algebranets. ALGEBRANETS_TRACEBACK=1 shows the traceback.)")
    shown = ending(end, ALGEBRANETS_TRACEBACK="1")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("Traceback (most recent call last)")
    assert shown.stderr.endswith(f"\n{result.stderr}")


@pytest.mark.parametrize(
    "end",
    [
        raising(MemoryError()),
        raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 TiB.")),
        lambda: torch.empty(2**60),
    ],
    ids=["MemoryError", "OutOfMemoryError", "RuntimeError"],
)
def test_too_little_memory_is_named_as_such(end, request):
    result = ending(end)
    assert result.exit_code == 2
    assert message_in_box(result.stderr).startswith(f"out of memory ({request.node.callspec.id}: ")


def test_a_package_that_is_not_installed_is_named():
    def end():
        import no_such_package.of_ours  # noqa: F401

    said = "this command needs the Python module no_such_package, which is not installed. Install its package with pip."
    assert message_in_box(ending(end).stderr) == said
    assert message_in_box(ending(lambda: import_module("json.nowhere")).stderr).startswith("unexpected ModuleNotFound")


@pytest.mark.parametrize("error", ["KeyError('x')", "MemoryError()"])
def test_describing_an_error_does_not_import_torch(error):
    code = f"import sys; from algebranets.lab.cli.errors import describe; describe({error})"
    assert in_new_process(f"{code}; print('torch' in sys.modules)") == "False"


def test_ctrl_c_ends_a_command_with_130_and_one_line():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    result = ending(lambda: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "stopped.\n")


def test_a_closed_pipe_ends_a_command_in_silence():
    def end():
        raise BrokenPipeError(32, "Broken pipe")

    result = ending(end)
    assert result.output == ""
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "program", [["-m", "algebranets"], [os.path.join(os.path.dirname(sys.executable), "algebranets")]]
)
def test_both_ways_to_start_it_end_the_same(program):
    """Characters that the terminal's encoding lacks are escaped."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, *program, "algebra", "Ü\udcff"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("+- Error -")
    assert r"| unknown algebra '\xdc\udcff'. It must be one of R, C, " in result.stderr
    assert {len(line) for line in result.stderr.splitlines()} == {80}


def test_help_says_how_to_see_a_traceback():
    assert "Set ALGEBRANETS_TRACEBACK=1" in " ".join(run("--help").stdout.split())


def test_an_error_leaves_no_progress_bar_on_the_terminal(monkeypatch):
    """A bar that is done stays."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(progress, "console", terminal)
    with progress.new_progress() as display:
        display.add_task("done", total=1, completed=1, status="")
    assert not terminal.file.getvalue().endswith(ERASED)
    display = progress.new_progress()
    display.add_task("broken", total=1, status="")
    with suppress(ValueError), display:
        raise ValueError("wrong")
    assert terminal.file.getvalue().endswith(ERASED)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_progress_bar_cuts_no_word_and_no_number(monkeypatch, columns):
    terminal = Console(file=io.StringIO(), width=columns)
    monkeypatch.setattr(progress, "console", terminal)
    status = "bpc 2.950, valid bpc 2.713, 21,649 characters/s"
    with progress.new_progress() as display:
        display.add_task("M2R x1.41, seed 2", total=40_000, completed=39_000, status=status)
    lines = terminal.file.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in terminal.file.getvalue()
    assert {"39000/40000", *status.split()} <= set(terminal.file.getvalue().split())


# Tables --------------------------------------------------------------------------------------------------------------


def words(printed):
    """Return the words without digits, since measured times differ."""
    return {word for word in printed.split() if word[0].isalpha() and not re.search(r"\d", word)}


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ["algebras"],
        ["algebra", "clifford(3,0)"],
        ["recipes"],
        ["paper"],
        ["paper", "--differences"],
        ["profile", "gru_lm"],
        ["profile", "gru_lm", "--algebra", "diagonal(4)"],
        ["profile", "cifar_resnet", "--algebra", "H", "--set", "num_blocks=1"],
        ["bench", "layers", "--algebra", "C", "--op", "linear", "--width", "16", "--batch", "2", "--rounds", "1"],
    ],
    ids=" ".join,
)
def test_no_word_of_a_table_is_broken_and_no_line_is_too_long(arguments, columns):
    """A terminal of 40 columns is too narrow for some tables."""
    result, wide = (run(*arguments, COLUMNS=str(width)) for width in (columns, 1000))
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= max(columns, 80)
    assert words(result.stdout) == words(wide.stdout)


TABLE = {
    "wrapped words": ["some words to wrap", "more"],
    "long numbers": ["12345678901234", "1"],
    "state": ["evaluating it all", "x"],
    "multiply-adds": ["zzzzzzzzzzzz", "y"],
}


def test_no_width_of_the_terminal_cuts_a_table(monkeypatch):
    """All columns but the first stand on one line. A table is not wider than the terminal, unless it must be."""
    texts = {word for heading, cells in TABLE.items() for text in (heading, *cells) for word in text.split()}
    for columns in range(40, 131):
        monkeypatch.setattr(terminal, "console", Console(file=io.StringIO(), width=columns))
        table = terminal.new_table()
        for number, heading in enumerate(TABLE):
            table.add_column(heading, no_wrap=number > 0)
        for row in zip(*TABLE.values(), strict=True):
            table.add_row(*row)
        terminal.show(table)
        printed = terminal.console.file.getvalue()
        assert texts <= set(printed.split()), columns
        needed = len("wrapped" + "12345678901234" + "evaluating it all" + "multiply-adds") + 2 * 4
        assert max(map(len, printed.splitlines())) <= max(columns, needed)


def test_a_title_is_not_broken_to_the_width_of_its_table(capsys):
    table = terminal.new_table("runs in " + "a-long-path/" * 20)
    table.add_column("run")
    terminal.show(table)
    assert "runs in " + "a-long-path/" * 20 + "\n" in capsys.readouterr().out


# Names that users give -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["[/b]", "[red]x", ":smile:", "ü", "a" * 100])
def test_names_are_printed_as_they_are(tmp_path, name):
    """Names are not read as rich's markup or as emoji codes."""
    file = tmp_path / "table.json"
    file.write_text(json.dumps({"name": name, "components": ["a", "b"], "table": [["a", "b"], ["b", "-a"]]}))
    result = run("algebra", file)
    assert result.exit_code == 0, result.output
    assert f"{name} |  a  b" in result.stdout
    result = run("profile", "gru_lm", "--algebra", file, "--set", "hidden_size=16")
    assert result.exit_code == 0, result.output
    assert name in result.stdout.replace("\n", "")
    arguments = ["--rounds", "1", "--width", "16", "--batch", "2", "--op", "linear"]
    result = run("bench", "layers", "--algebra", file, *arguments)
    assert result.exit_code == 0, result.output
    assert name in result.stdout


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_path_is_broken_only_in_an_error_box(tmp_path, columns):
    folder = tmp_path / ("a long [b] name :smile: " * 5).strip()
    arguments = ["--algebra", "C", "--op", "linear", "--width", "16", "--batch", "2", "--rounds", "1"]
    result = run("bench", "layers", *arguments, "--save", folder / "rows.jsonl", COLUMNS=str(columns))
    assert f"rows written to {folder / 'rows.jsonl'}\n" in result.output
    result = run("bench", "figure", folder / "rows.jsonl", "--out", folder / "figure.svg", COLUMNS=str(columns))
    assert f"1 row drawn in {folder / 'figure.svg'}\n" in result.output
    for command in (
        ["algebra", folder / "x.toml"],
        ["eval", folder],
        ["generate", folder],
        ["train", "--resume", folder],
    ):
        result = run(*command, COLUMNS=str(columns))
        assert result.exit_code == 2
        assert without_spaces(str(command[-1])) in without_spaces(message_in_box(result.stderr))


def test_a_warning_is_one_line_with_its_path_whole(tmp_path, capsys):
    show_warnings()
    logging.getLogger("algebranets").warning("checkpoint %s [/b] is broken", tmp_path / ("x" * 200))
    assert capsys.readouterr().out == f"warning: checkpoint {tmp_path / ('x' * 200)} [/b] is broken\n"


def test_bench_prints_ratios_and_writes_rows(tmp_path):
    rows = tmp_path / "deep" / "rows.jsonl"
    arguments = ["--algebra", "M2R", "--algebra", "C", "--width", "32", "--batch", "64", "--rounds", "2"]
    result = run("bench", "layers", *arguments, "--save", str(rows))
    assert result.exit_code == 0, result.output
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["op"], row["algebra"]) for row in written[:2]] == [("linear", "M2R"), ("linear", "C")]
    assert {row["op"] for row in written} == {"linear", "conv2d", "gru"}
    assert all(row["speedup"] > 0 and row["error"] < 1e-4 for row in written)
    assert [path.name for path in rows.parent.iterdir()] == ["rows.jsonl"]
    assert f"{written[0]['speedup']:.2f}x" in result.stdout


def test_profile_prints_stages_and_the_total():
    result = run("profile", "resnet50", "--algebra", "M2R", "--width", "1.376")
    assert result.exit_code == 0, result.output
    with torch.device("meta"):
        cost = algebranets.account(algebranets.models.create("resnet50", algebra="M2R", width=1.376))
    costs, traffic = result.stdout.split("Memory traffic")
    rows = {line.split()[0]: line for line in costs.splitlines() if line.split()}
    assert {stage.name for stage in cost.stages()} <= set(rows)
    assert f"{cost.parameters / 1e6:.2f} M" in rows["total"]
    assert f"{cost.multiplies / 1e9:.3f} G" in rows["total"]
    assert re.search(rf"total .* {cost.bytes / 1e6:.2f} MB", traffic)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_profile_compares_a_model_with_the_same_model_over_r():
    arguments = ("profile", "gru_lm", "--set", "hidden_size=64")
    ours, real = (json.loads(run(*arguments, "--algebra", name, "--json").stdout) for name in ("M2R", "R"))
    assert ours["real"] == {"parameters": real["parameters"], "multiplies": real["multiplies"]}
    assert "real" not in real
    (total,) = (
        line
        for line in run(*arguments, "--algebra", "M2R").stdout.splitlines()
        if "total" in line[:7] and "B" not in line
    )
    for count in ("parameters", "multiplies"):
        assert f"{real[count] / 1e3:#.4g} k  {ours[count] / real[count]:.3f}" in total
    assert "over R" not in run(*arguments, "--algebra", "R").stdout


def test_profile_prints_json():
    arguments = ["--algebra", "M2R", "--set", "num_layers=3", "--set", "window=100", "--json"]
    result = run("profile", "transformer_xl", *arguments)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert sum(row["multiplies"] for row in data["rows"]) == data["multiplies"]
    assert sum(row["name"].endswith("attention") for row in data["rows"]) == 3
    assert data["options"] == {"algebra": "M2R", "num_layers": 3, "window": 100}
    assert data["paper"] < data["multiplies"]


def test_profile_at_another_size_and_depth():
    small, large = (
        json.loads(run("profile", "cifar_resnet", "--image-size", str(size), "--json").stdout) for size in (16, 32)
    )
    assert small["parameters"] == large["parameters"]
    assert 3.9 < large["multiplies"] / small["multiplies"] < 4.1
    assert "stage1.0 " in run("profile", "cifar_resnet", "--depth", "2").stdout


HELP_OF_EVERY_COMMAND = """
import sys, typer
from algebranets.lab.cli import app

def commands(command, context):
    yield context
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, sub.make_context(name, [], parent=context, resilient_parsing=True))

top = typer.main.get_command(app)
helped = []
for context in commands(top, top.make_context("algebranets", [], resilient_parsing=True)):
    context.get_help()
    helped.append(context.command_path)
heavy = ("torch", "lightning", "matplotlib", "sklearn", "numpy", "jaxtyping", "safetensors")
print(len(helped), [name for name in heavy if name in sys.modules])
"""


def in_new_process(code):
    """Run Python code, and return what it prints last."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1]


def test_help_of_every_command_imports_nothing_heavy():
    """Time is not measured. It depends on the modules that are imported."""
    number, heavy = in_new_process(HELP_OF_EVERY_COMMAND).split(" ", 1)
    assert int(number) > 25
    assert heavy == "[]"


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["algebras"], ["algebra", "H"], ["recipes", "--algebras", "R,quaternions"], ["paper"]],
    ids=" ".join,
)
def test_commands_that_only_print_do_not_import_torch(arguments):
    code = (
        "import sys; from typer.testing import CliRunner; from algebranets.lab.cli import app\n"
        f"assert CliRunner().invoke(app, {arguments!r}).exit_code == 0\n"
        "print([name for name in ('torch', 'numpy', 'lightning') if name in sys.modules])"
    )
    assert in_new_process(code) == "[]"


def test_help_lists_the_commands():
    result = run("--help")
    assert result.exit_code == 0, result.output
    for name in ("algebras", "algebra", "profile", "paper", "bench"):
        assert re.search(rf"^\W+{name} ", result.stdout, re.MULTILINE)


# Completion by the shell ---------------------------------------------------------------------------------------------


def completed(*words):
    """Return what the shell offers for the last of these words."""
    line = {"COMP_WORDS": " ".join(("algebranets", *words)), "COMP_CWORD": str(len(words))}
    environment = {**line, "_ALGEBRANETS_COMPLETE": "complete_bash"}
    return CliRunner(env=environment).invoke(app, [], prog_name="algebranets").stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["prof"], ["profile"]),
        (["profile", "resnet1"], ["resnet18", "resnet101"]),
        (["profile", "gru_lm", "--algebra", "M4"], ["M4R"]),
        (["profile", "gru_lm", "--algebra", "quat"], ["quaternion", "quaternions"]),
        (["train", "mn"], ["mnist"]),
        (["sweep", "digits", "--algebras", "R,DU"], ["R,DUAL"]),
        (["recipes", "--algebras", "CR"], ["CROSS"]),
        (["algebra", "DU"], ["DUAL"]),
        (["bench", "layers", "--algebra", "M3"], ["M3R"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_the_shell_completes_commands_and_names(words, offered):
    assert completed(*words) == offered


@pytest.mark.parametrize("words", [["algebra", ""], ["recipes", "--algebras", ""], ["profile", ""], ["train", ""]])
def test_the_shell_gets_only_names_that_need_no_quotes(words):
    """bash inserts names as they are, and an unquoted "(" is a syntax error."""
    offered = completed(*words)
    assert len(offered) > 5
    assert [name for name in offered if shlex.quote(name) != name] == []
