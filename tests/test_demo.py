"""The command `demo`: small language models over several algebras, compared with the spread over seeds."""

import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from algebranets.lab import recipes, train
from algebranets.lab.cli import app, demo
from algebranets.lab.report import summary
from algebranets.lab.report.study import studies
from algebranets.lab.train import Stopped, results

TINY = ["steps=2", "evaluations=1", "data.eval_batch_size=512", "data.eval_length=46"]
NETWORKS = (("R", 1.0), ("R", 0.67), ("M2R", 1.0))
NAMES = {"R", "R x0.67", "M2R"}


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """A demo of three networks that is stopped before its third run, continued, and continued with a second seed.

    Returns the folder, the three outcomes, and the runs that were trained for each of them.
    """
    out = tmp_path_factory.mktemp("demo")
    outcomes, trained, train_run = [], [], train.run

    def run(experiment, path, *options):
        if not outcomes and len(trained[-1]) == 2:
            raise Stopped
        if not (path / "result.json").exists():
            trained[-1].append(experiment.name)
        return train_run(experiment, path, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "run", run)
        patch.setattr(demo, "NETWORKS", NETWORKS)
        for seeds, columns in ((1, 80), (1, 120), (2, 80)):
            trained.append([])
            line = ["demo", "--seeds", str(seeds), "--out", str(out), *(f"--set={setting}" for setting in TINY)]
            outcomes.append(CliRunner().invoke(app, line, env={"COLUMNS": str(columns)}))
    return out, outcomes, trained


def on_one_line(outcome):
    return " ".join(outcome.output.split())


def test_a_stopped_demo_is_continued_by_the_same_command(demos):
    _, (stopped, continued, _), trained = demos
    assert stopped.exit_code == 130
    assert "the same command continues it" in stopped.output
    assert continued.exit_code == 0, continued.output
    assert [len(names) for names in trained] == [2, 1, 3]
    assert len({name for names in trained for name in names}) == 6


def test_the_demo_compares_each_network_with_the_real_one(demos):
    out, (_, _, last), _ = demos
    assert last.exit_code == 0, last.output
    (study,) = studies(results.read([out]))
    assert {study.name(group) for group in study.groups} == NAMES
    rows = [line for line in last.output.splitlines() if "%)" in line]
    for group in study.groups:
        (row,) = (row for row in rows if row.startswith(f" {study.name(group)}  "))
        assert f"{group.mean:.3f} ± {group.deviation:.3f}" in row
        assert row.split()[-1] in (("–",) if study.name(group) == "R" else ("yes", "no"))


def test_with_one_seed_the_demo_says_that_the_spread_is_not_known(demos):
    _, (_, continued, last), _ = demos
    assert continued.output.count("not known") == len(NAMES)  # all rows except for that of R, and the headline
    assert "not known" not in last.output
    assert "One seed, on held-out text (lower is better)" in continued.output
    assert "deviation over seeds" not in continued.output
    assert "Each network is trained once and judged" in on_one_line(continued)
    assert "Mean ± standard deviation over seeds, on held-out text (lower is better)" in last.output


def test_the_demo_ends_with_the_headline_the_page_and_what_to_do_next(demos):
    out, (_, _, last), _ = demos
    (study,) = studies(results.read([out]))
    (page,) = out.rglob("report.html")
    headline = summary.headline(study)
    shown = on_one_line(last)
    places = [shown.index(text) for text in (headline, str(page), "What to do next")]
    assert places == sorted(places)
    assert headline.startswith("At equal parameters")


def test_the_demo_fits_into_80_columns(demos):
    _, (_, _, last), _ = demos
    lines = [line for line in last.output.splitlines() if not line.startswith("The report:")]  # a path is not wrapped
    assert max(map(len, lines)) <= 80
    assert "…" not in last.output


def test_the_demo_recommends_commands_that_exist():
    commands = [line for _, line in demo.NEXT_STEPS if line.startswith("algebranets ")]
    assert len(commands) == 2
    for line in commands:
        _, name, *arguments = shlex.split(line)
        get_command(app).commands[name].make_context(name, arguments)  # raises an error for an unknown option


def test_the_demo_trains_the_algebras_of_the_paper_at_one_width():
    assert [algebra for algebra, width in demo.NETWORKS if width == 1] == ["R", "C", "H", "M2R"]


def test_the_narrow_real_network_of_the_demo_has_as_many_parameters_as_those_over_H_and_M2R():
    counts = {network: recipes.cost(recipes.create(demo.RECIPE, *network)).parameters for network in demo.NETWORKS}
    for algebra in ("H", "M2R"):
        assert counts[algebra, 1.0] == pytest.approx(counts["R", 0.67], rel=0.02)
