"""Recorded counts are those that `account` counts, and `recipes` prints them."""

import pytest
import record
from typer.testing import CliRunner

from algebranets import models
from algebranets.lab import recipes, recorded
from algebranets.lab.cli import app
from algebranets.lab.recorded import Recipe

STALE = "recorded counts are old: run `python tools/record.py`"


def run(*arguments, columns=80):
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["recipes", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_recorded_counts_of_the_papers_networks_are_what_account_counts():
    assert recorded.networks() == record.count_networks(), STALE


@pytest.mark.parametrize("algebra", ["R", "M2R", *(pytest.param(a, marks=pytest.mark.slow) for a in ("C", "H"))])
def test_the_recorded_recipes_are_what_account_counts(algebra):
    found = {name: recipe for name, recipe in recorded.recipes().items() if name.endswith(f" over {algebra}")}
    assert found == record.count_recipes((algebra,)), STALE


def test_all_names_are_recorded():
    assert recorded.recipe_names() == list(recipes.RECIPES), STALE
    assert recorded.model_names() == list(models.MODELS), STALE
    assert set(recorded.recipes()) == {f"{r} over {a}" for r in recipes.RECIPES for a in record.ALGEBRAS}, STALE


def test_writing_the_recorded_counts_again_does_not_change_the_file(tmp_path, monkeypatch):
    file = tmp_path / "recorded.json"
    networks, listed, names = recorded.networks(), recorded.recipes(), recorded.model_names()
    before = recorded.FILE.read_text()
    monkeypatch.setattr(recorded, "FILE", file)
    record.write(networks, listed, names)
    assert file.read_text() == before


@pytest.mark.parametrize("columns", [80, 120])
def test_recipes_lists_every_one_with_its_costs(columns):
    output = run(columns=columns)
    rows = {line.split()[0]: line for line in output.splitlines() if line.split()}
    for name in recipes.RECIPES:
        count = recorded.recipes()[f"{name} over M2R"].parameters
        shown = f"{count / 1e6:#.4g} M" if count >= 1e6 else f"{count / 1e3:#.4g} k"
        assert shown in rows[name]
    assert max(map(len, output.splitlines())) <= columns
    assert "…" not in output
    assert "1.345 M" in output  # digits at 8 x 8 pixels


def test_a_terminal_that_is_too_narrow_cuts_nothing():
    assert run(columns=40).split() == run(columns=80).split()


def test_an_algebra_that_is_not_recorded_is_counted(tmp_path, monkeypatch):
    """An algebra from a file may have the name of a recorded one."""
    counted = []

    def count(_recipe, algebra):
        counted.append(algebra)
        return Recipe("digits", 8, "1 epochs", 12_345, 2)

    monkeypatch.setattr(recipes, "describe", count)
    file = tmp_path / "H.toml"
    file.write_text('name = "H"\ntable = [["a", "b"], ["b", "a"]]')
    assert "12.35 k" in run("--algebras", f"quaternions,{file},M5R")
    assert set(counted) == {str(file), "M5R"}
