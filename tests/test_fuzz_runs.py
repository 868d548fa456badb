"""Damaged files of runs and data sets: each is read, or refused with an error meant for users."""

import copy
import gzip
import io
import json
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algebranets.lab import data as datasets
from algebranets.lab import recipes, train
from algebranets.lab.data import cifar, corpora, idx
from algebranets.lab.report import curves, summary, tables
from algebranets.lab.report.study import studies
from algebranets.lab.train import Hardware, Result, RunFolder
from algebranets.lab.train.checkpoint_files import read_checkpoint
from fuzz import fuzzed
from test_data_files import cifar_files, idx_files

NUMBERS = st.integers(-9, 300) | st.sampled_from([2**31, 2**63, 10**30, -1, 0]) | st.floats()
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=5)
    | st.sampled_from(["M2R", "sgd", "cuda", "gru_lm", "a.txt"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
JSON = ("config.json", "environment.json", "result.json", "metrics.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a finished run, and a folder for damaged copies of it."""
    path = tmp_path_factory.mktemp("finished")
    (path / "x.json").write_text(json.dumps({"name": "x", "components": ["1", "u"], "table": [[1, 2], [2, 0]]}))
    experiment = recipes.create("digits", str(path / "x.json"), 0.25, settings={"steps": 2, "data.batch_size": 20})
    train.run(experiment, path / "run", Hardware(accelerator="cpu", log_steps=1))
    return path / "run", tmp_path_factory.mktemp("damaged") / "run"


def places(node, path=()):
    """Yield the path of every value in JSON data."""
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


def changed(draw, data):
    """Return JSON data with one value replaced, removed or added."""
    data = copy.deepcopy(data)
    path = draw(st.sampled_from(list(places(data))))
    if not path:
        return draw(ANYTHING)
    node = data
    for key in path[:-1]:
        node = node[key]
    way = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    if way == "replace":
        node[path[-1]] = draw(ANYTHING)
    elif way == "remove":
        del node[path[-1]]
    elif isinstance(node, dict):
        node[draw(st.text(max_size=5))] = draw(ANYTHING)
    else:
        node.append(draw(ANYTHING))
    return data


def damaged(draw, content):
    """Return the bytes with some replaced, removed or inserted."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
    return bytes(content)


def assert_works_or_says_why(read):
    """Return what ``read`` returns, or None if it raised an error meant for users. Any other error fails the test."""
    try:
        return read()
    except (ValueError, OSError):
        return None


def assert_readable_or_says_why(run):
    """Read everything in a run's folder that commands read. Errors must be meant for users."""
    experiment = assert_works_or_says_why(run.experiment)
    if experiment is not None:
        assert_works_or_says_why(lambda: run.holds(experiment))
        assert_works_or_says_why(lambda: experiment.changed({"seed": 1}))
        assert json.loads(json.dumps(experiment.to_dict()))
    assert_works_or_says_why(run.environment)
    assert_works_or_says_why(lambda: Hardware.of(run))
    assert_works_or_says_why(run.finished)
    assert_works_or_says_why(lambda: list(run.rows()))


@fuzzed(0.08)
@given(st.data())
def test_any_change_of_a_runs_files(finished, data):
    whole, copied = finished
    if not copied.exists():
        shutil.copytree(whole, copied)
    name = data.draw(st.sampled_from(JSON))
    content = (whole / name).read_bytes()
    if data.draw(st.booleans()):
        content = damaged(data.draw, content)
    else:
        lines = (
            [json.loads(line) for line in content.splitlines()] if name == "metrics.jsonl" else [json.loads(content)]
        )
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = changed(data.draw, lines[at])
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (copied / name).write_bytes(content)
    try:
        assert_readable_or_says_why(RunFolder(copied))
    finally:
        shutil.copyfile(whole / name, copied / name)


@fuzzed(0.03)
@given(st.data())
def test_any_row_of_results(finished, data):
    """A result that can be read has a headline, tables and curves in reports."""
    row = changed(data.draw, json.loads((finished[0] / "result.json").read_bytes()))
    result = assert_works_or_says_why(lambda: Result.from_dict(row, "results.jsonl, line 1"))
    for study in assert_works_or_says_why(lambda: studies([result])) or () if result else ():
        assert summary.headline(study)
        assert list(tables.sheets(study))
        assert curves.clocks([result])


@fuzzed(0.02)
@given(st.data())
def test_any_checkpoint(finished, tmp_path_factory, data):
    """A file may be damaged, or be whole and not a checkpoint."""
    whole = RunFolder(finished[0]).checkpoints()[-1]
    path = tmp_path_factory.getbasetemp() / whole.name
    if data.draw(st.booleans()):
        path.write_bytes(damaged(data.draw, whole.read_bytes()))
    else:
        foreign = io.BytesIO()
        torch.save(data.draw(ANYTHING), foreign)
        path.write_bytes(foreign.getvalue())
    state = assert_works_or_says_why(lambda: read_checkpoint(path))
    assert state is None or "state_dict" in state


@pytest.fixture(scope="module")
def data_files(tmp_path_factory):
    """Return folders of small data sets by name. Sizes and checksums are forgotten, so that whole files are read."""
    root = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    idx_files(root / "mnist")
    idx_files(root / "fashion-mnist", "{}.gz".format, gzip.compress)
    cifar_files(root)
    (root / "enwik8").write_text("the quick brown fox. " * 50)
    with pytest.MonkeyPatch.context() as patch:
        for known in (cifar.KNOWN, idx.KNOWN):
            for name in known:
                patch.setitem(known, name, {})
        patch.setattr(corpora, "KNOWN", {})
        yield {"mnist": root, "fashion-mnist": root, "cifar10": root / "py", "enwik8": root}


@fuzzed(0.02)
@given(st.data())
def test_any_data_file(data_files, data):
    name = data.draw(st.sampled_from(sorted(data_files)))
    root = data_files[name]
    files = sorted(path for path in root.rglob("*") if path.is_file() and name.split("10")[0] in str(path))
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    path.write_bytes(damaged(data.draw, content))
    try:
        dataset = assert_works_or_says_why(lambda: datasets.load(name, root))
        if dataset is not None:
            batches = dataset.evaluation(2, length=3) if name == "enwik8" else dataset.evaluation(2)
            next(batches.iterate(0, 1))
    finally:
        path.write_bytes(content)
