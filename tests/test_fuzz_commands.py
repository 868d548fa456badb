"""Random command lines: each ends with a result or with an error that says what is wrong.

No case may train or need much memory. So recipes are those whose data is missing, and no file has a text that is long
enough to train on.
"""

import io
import os
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from algebranets import algebra, models
from algebranets.lab import recipes
from algebranets.lab.cli import app
from algebranets.models import publish
from boxes import message_in_box
from fuzz import fuzzed

HUGE = ["1e6", "1e30", "1e308", str(2**31), str(2**63), "9" * 30, "9" * 5000, "0x" + "f" * 5000]
NUMBERS = ["0", "-0", "1", "2", "3", "8", "0.5", "1e-30", "1e-320", "-1", "nan", "inf", "-inf", "1_0", "٣", *HUGE]
LITERALS = ["None", "true", "True", "{[]}", "{}", "[1, 2]", "(0.5,)", "'x'", "b'x'", "1j", "...", "-" * 3000 + "1"]
LITERALS += [f"({2**70}, 0)", f"(0x{'f' * 5000}, 0)", "(1e400, 0)", "('x', 0)", "[[[]]]", "(0,) * 3", "1" + "0" * 400]
NASTY = ["", " ", "-", "--", "=", "[/b]", "[red]", ":smile:", "\x1b[31m", "\n", "\udcff", "ü", "%s", "{0}", "$x$", "*"]
NASTY += ["(" * 500, "[" * 500, "a" * 300, "a" * 5000, "~", "~no-such-user", "~no-such-user/x", "M2r", "1h"]
NASTY += ["9" * 400 + "h", "9" * 400 + ".5h", "pruning.sparsity=0.5,", "R,", ",", "steps=1=1"]
FILES = {
    "empty": b"",
    "text": b"x = 1",
    "bytes": bytes(range(256)),
    "bytes.toml": b"\xff\xfe",
    "bytes.txt": b"\xff\xfe",
    "nested.json": b"[" * 100_000,
    "nested.toml": b"table = " + b"[" * 100_000,
    "null.json": b'{"name": 5, "components": null, "table": null}',
    "table.toml": b'table = [["a", "b"], ["b", "-a"]]',
    "rows.jsonl": b'{"speedup": 1}\n',
    "numbers.jsonl": b"5\nnull\n[]\n{}\n",
    "run/config.json": b"[]",
    "run/environment.json": b"[]",
    "run/metrics.jsonl": b"[]\n",
    "run/result.json": b"[]",
    "run/weights.safetensors": b"{",
    "folder.json/nothing": b"",
}
PLACES = [*FILES, "run", "folder.json", "text/below", "gone", "/dev/null", "/dev/null/below", "/proc/below"]
ALL = get_command(app)
#: Recipes that stop because their data is missing, and the names of settings.
RECIPES = [name for name in recipes.RECIPES if name not in ("digits", "char-lm", "char-lm-small")]
SETTINGS = sorted(
    {name for recipe in ("resnet50", "gru") for name, _ in recipes.create(recipe).settings()} - {"data.name"}
)
#: Models and options that make them small.
SMALL = {
    "gru_lm": {"hidden_size": 8, "num_readouts": 1},
    "transformer_xl": {"num_layers": 1, "d_model": 8, "num_heads": 1, "ff_size": 8, "window": 4},
    "cifar_resnet": {"num_blocks": 1, "width": 0.125},
}

# No NUL, which no shell can pass to a command, and no path that leads out of the folder.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=10).filter(
    lambda text: ".." not in text
)
values = st.sampled_from(NUMBERS) | st.sampled_from(LITERALS) | st.sampled_from(NASTY) | words
paths = st.sampled_from(PLACES) | st.sampled_from(PLACES + NASTY) | words
numbers = st.sampled_from(NUMBERS) | values
constructors = st.builds(
    "{}({})".format,
    st.sampled_from(["matrix", "diagonal", "clifford", "cayley_dickson", "cyclic", "tensor", "M2R"]),
    st.lists(st.sampled_from(["0", "1", "2", "-1", "99", "x", "", "9" * 5000]), max_size=3).map(",".join),
)
algebras = st.sampled_from(["C", "H", "M2R", "DUAL", "M0R", "M9R", "table.toml"]) | constructors | paths


def options(**given):
    """Draw one to three of these options, each with a value."""
    each = [value.map(f"--{name.replace('_', '-')}={{}}".format) for name, value in given.items()]
    return st.lists(st.one_of(each), min_size=1, max_size=3)


def command(*parts):
    """Draw a command line of fixed words and of drawn lists of words."""
    return st.tuples(*(part if isinstance(part, st.SearchStrategy) else st.just([part]) for part in parts)).map(
        lambda found: [word for words in found for word in words]
    )


def one(strategy):
    return strategy.map(lambda word: [word])


def settings(names):
    return st.builds("{}={}".format, st.sampled_from(names), values) | values


def profile(model):
    """Draw a `profile` command. Numbers of layers are fixed, because a million layers would take too long."""
    names = ["algebra", "lowering", "norm", "vocab_size", "num_classes", "hidden_size", "d_model", "width", "window"]
    small = [f"--set={name}={value}" for name, value in SMALL[model].items()]
    odd = options(algebra=algebras, width=numbers, image_size=numbers, depth=numbers, set=settings(names))
    return command("profile", one(st.just(model) | values), st.just(small), odd, st.sampled_from([[], ["--json"]]))


WRITING = options(
    prompt=values, length=st.sampled_from(["1", "3", "0", "-1", "x", ""]), temperature=numbers, top_k=numbers,
    top_p=numbers, seed=numbers, precision=values, accelerator=values | st.just("cuda"),
)  # fmt: skip
HARDWARE = {
    "accelerator": values, "devices": numbers, "nodes": numbers, "strategy": values | st.just("fsdp"),
    "precision": values, "checkpoint_minutes": numbers, "checkpoint_steps": numbers, "log_steps": numbers,
    "logger": values, "threads": numbers,
}  # fmt: skip
TRAINING = {"algebra": algebras, "width": numbers, "seed": numbers, "set": settings(SETTINGS), "budget": values}
BENCH = options(
    algebra=algebras, op=values, width=numbers, batch=numbers, lowering=values, dtype=values, rounds=numbers,
    sparsity=numbers, num_layers=numbers, model=values, set=values, save=paths,
)  # fmt: skip
COMMANDS = {
    "algebra": command("algebra", one(algebras)),
    "algebras": command("algebras", st.lists(values, max_size=1)),
    "profile": st.one_of([profile(model) for model in SMALL]),
    "recipes": command("recipes", one(st.sampled_from(NASTY + LITERALS + NUMBERS).map("--algebras={}".format))),
    "paper": command("paper", st.lists(values.filter(lambda word: word != "--"), min_size=1, max_size=2)),
    "train": command("train", one(st.sampled_from(RECIPES)), options(**TRAINING, **HARDWARE), "--data=folder.json"),
    "data": command("train", one(st.sampled_from(["resnet50", "cifar10"])), one(paths.map("--data={}".format))),
    "unknown": command("train", one(values)),
    "resume": command("train", one(paths.map("--resume={}".format)), options(**TRAINING, **HARDWARE)),
    "eval": command("eval", one(paths), options(data=paths, split=values, set=settings(SETTINGS), precision=values)),
    "generate": command("generate", one(paths), WRITING),
    "writing": command("generate", "tiny.safetensors", "--length=2", WRITING),
    "sparse": command("sparse", one(paths), options(out=paths, at_least=numbers), "--out=run"),
    "report": command("report", st.lists(paths, min_size=1, max_size=2), "--out=text"),
    # The last setting is an error, so that nothing is trained.
    "sweep": command(
        "sweep", one(st.sampled_from(RECIPES) | values),
        options(algebras=algebras, widths=values, seeds=numbers, each=settings(SETTINGS), jobs=numbers, budget=values),
        "--set=data.batch_size=0",
    ),
    "demo": command("demo", options(set=settings(SETTINGS), out=paths, seeds=numbers), "--set=data.batch_size=0"),
    "figure": command("bench", "figure", st.lists(paths, min_size=1, max_size=2), one(paths.map("--out={}".format))),
    "bench": command("bench", one(st.sampled_from(["layers", "decode", "sparse", "models"])), BENCH, "--device=tpu"),
    "anything": st.lists(values | st.sampled_from(["algebra", "bench", "--help", "--version"]), max_size=3),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory):
    """Run commands in a folder of damaged files and tiny weights."""
    folder, before = tmp_path_factory.mktemp("commands"), os.getcwd()
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    publish(
        models.create("gru_lm", algebra="C", **SMALL["gru_lm"]),
        "gru_lm",
        algebra.C,
        SMALL["gru_lm"],
        folder / "tiny.safetensors",
    )
    os.chdir(folder)
    yield
    os.chdir(before)


def run(arguments):
    """Run a command and return its exit code, stdout and stderr. Commands are built once, since that is slow."""
    handlers = ("strict", "backslashreplace")  # Python's, of stdout and stderr
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in handlers]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), pytest.raises(SystemExit) as ended:
        ALL.main(arguments, prog_name="algebranets")
    for stream in streams:
        stream.seek(0)
    return ended.value.code, *(stream.read() for stream in streams)


@pytest.mark.parametrize("name", COMMANDS)
@fuzzed(0.25 / len(COMMANDS))
@given(st.data())
def test_every_command_line_ends_with_a_result_or_with_what_is_wrong(name, data):
    code, stdout, stderr = run(data.draw(COMMANDS[name]))
    assert code in (0, 2), stderr
    assert "Traceback" not in stdout + stderr
    if code == 2 and "Usage:" not in stdout:  # a group of commands without a command prints its help
        assert not message_in_box(stderr).startswith(("unexpected ", "out of memory "))
