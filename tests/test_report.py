"""Results taken together, and beside the paper's figures: tables and sentences."""

import math
import re
from dataclasses import replace

import pytest

from algebranets.algebra import CATALOGUE
from algebranets.report import numbers, page, paper, published, summary, tables
from algebranets.report.groups import studies
from runs import CIFAR, cifar_results, result


def one(results):
    (study,) = studies(results)
    return study


def cells(sheet):
    """The sheet as {row: {heading: text}}; of two columns of one name the last."""
    return {row[0].text: dict(zip(sheet.headings, (c.text for c in row), strict=True)) for row in sheet.rows}


# Groups ---------------------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_the_seed_only_are_one_row():
    study = one([result(94.0), result(95.0, seed=1), result(96.0, seed=2), result(90.0, width=0.5)])
    wide, narrow = sorted(study.groups, key=lambda group: -group.first.width)
    assert (wide.mean, wide.spread, len(wide.results)) == (95.0, 1.0, 3)
    assert (narrow.mean, narrow.spread, len(narrow.results)) == (90.0, None, 1)
    assert tables.reached(wide) == "95.00 ± 1.00 (3 seeds)"
    assert tables.reached(narrow) == "90.00 (1 seed)"


def test_the_spread_is_the_sample_standard_deviation():
    (group,) = one([result(94.0), result(94.4, seed=1)]).groups
    assert group.spread == pytest.approx(0.4 / math.sqrt(2))


def test_recipes_are_apart_and_a_run_given_twice_counts_once():
    found = studies([result(94.0), result(1.3, recipe="gru", metric="bpc"), result(94.0)])
    assert [(study.recipe, len(study.groups[0].results)) for study in found] == [("cifar10", 1), ("gru", 1)]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([result(94.0), result(94.1)], "must have one run a seed; got several of seed 0"),
        ([result(94.0, metric="f1")], "measured in 'f1'; it must be one of accuracy, bpc"),
        ([result(94.0), result(1.0, seed=1, metric="bpc")], "must share one metric"),
        ([], "at least one result"),
    ],
)
def test_what_cannot_be_reported_is_said(results, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        page.write(results, tmp_path)


def test_a_diverged_run_is_said_and_not_averaged_away():
    study = one([result(94.0), result(float("nan"), seed=1), result(93.0, "C")])
    real, _ = study.groups
    assert real.spread is None
    assert tables.reached(real) == "diverged (2 seeds)"
    assert study.finished == [study.groups[1]]
    assert summary.headline(study).startswith("C reaches 93.00 %")


# Beside the paper -----------------------------------------------------------------------------------------------------


def test_all_six_cifar_rows_stand_beside_their_printed_figure():
    study = one(cifar_results())
    rows = [group for group in study.groups if group.printed]
    assert {group.printed.row for group in rows} == {f"{algebra} {norm}" for algebra, norm in CIFAR}
    sheet = cells(tables.rows_sheet(study))
    for number, (algebra, norm) in enumerate(CIFAR):
        parameters, _, quality = paper.CIFAR[algebra, norm]
        row = sheet[algebra if norm == "batch" else f"{algebra}, norm {norm}"]
        assert (row["accuracy, paper"], row["parameters, paper"]) == (quality, f"{parameters} M")
        assert row["accuracy, ours"] == f"{94 + number / 10:.2f} ± 0.01 (3 seeds)"
        away = round(94 + number / 10 - float(quality), 2)
        assert row["difference"] == (f"{away:+.2f}".replace("-", "−") if away else "0.00")


@pytest.mark.parametrize(
    ("changes", "width"),
    [({"model.lift": "zeros"}, 1.0), ({"steps": 10}, 1.0), ({}, 0.5), ({"model.init": "polar"}, 1.0)],
)
def test_a_network_trained_otherwise_is_no_row_of_the_paper(changes, width):
    assert one([result(94.0, changes=changes, width=width)]).groups[0].printed is None


def test_language_models_are_known_by_their_sizes():
    for (algebra, tuples), (parameters, _, quality) in paper.WIKITEXT.items():
        found = published.printed("gru", algebra, 0.5, {"hidden_size": tuples * CATALOGUE[algebra].dim})
        assert (found.parameters, found.quality) == (parameters, quality)
    for row, (options, figures_, _) in paper.ENWIK8.items():
        found = published.printed("transformer_xl", options["algebra"], 1.0, options)
        assert (found.row, found.quality) == (row, figures_[3])
    assert published.printed("transformer_xl", "M2R", 1.0, {**paper.EFFICIENT, "num_layers": 24}) is None
    assert published.printed("resnet50", "H", 1.0, {}).quality == "74.0"
    assert published.printed("resnet50", "R", 1.0, {}) is None
    assert published.printed("digits", "R", 1.0, {}) is None


def test_fewer_bits_are_better_and_the_difference_is_ours_less_the_papers():
    runs = [
        result(1.25 + seed / 1000, "R", seed, "gru", metric="bpc", changes={"model.hidden_size": size})
        for seed in range(3)
        for size in (1024, 2048)
    ]
    sheet = tables.rows_sheet(one(runs))
    small, large = (dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows)
    assert small["difference"] == ("−0.089", "better")
    assert large["difference"] == ("+0.011", "worse")
    assert "less is better" in sheet.notes[0]


def test_a_difference_within_the_spread_is_not_set_off():
    runs = [result(94.2 + away, seed=seed) for seed, away in enumerate((-0.2, 0.0, 0.4))]
    sheet = tables.rows_sheet(one(runs))
    assert dict(zip(sheet.headings, sheet.rows[0], strict=True))["difference"] == ("+0.07", "")


def test_without_printed_rows_the_real_network_is_the_measure():
    runs = [result(98.0, recipe="digits"), result(97.5, "M2R", recipe="digits")]
    sheet = tables.rows_sheet(one(runs))
    assert sheet.title == "Against the real network"
    assert [cell.text for cell in sheet.rows[1]][1:7] == [
        "1.00 M", "25 %", "500 M", "100 %", "97.50 (1 seed)", "−0.50",
    ]  # fmt: skip
    assert [cell.text for cell in sheet.rows[0]][2] == numbers.NONE


def test_a_real_network_as_good_lies_between_two_that_were_trained():
    """By logarithms of their costs: halfway from 2 M to 8 M parameters is 4 M. A larger one that is worse is passed."""
    reals = [result(value, width=width) for value, width in ((90.0, 0.5), (89.0, 1.0), (94.0, 2.0))]
    runs = [result(92.0, "M2R", width=2.0), result(89.5, "C"), result(95.0, "H"), result(94.0, "C", width=2.0)]
    study = one([*reals, *runs])
    assert [group.first.width for group in study.real_sizes] == [0.5, 2.0]
    sheet = cells(next(sheet for sheet in tables.sheets(study) if sheet.title == "At equal quality"))
    assert list(sheet) == ["C x2", "M2R x2"]  # neither the one that is worse than all, nor the one that is better
    (equal,) = (row for row in tables.equal_quality_sheet(study).rows if row[0].text == "M2R x2")
    assert [cell.text for cell in equal[1:]] == ["92.00", "2.00 M", "4.00 M", "50 %", "1.00 G", "500 M", "200 %"]
    assert sheet["C x2"]["real"] == "1.00 G"


def test_fewer_bits_are_as_good_too_and_one_real_size_tells_nothing():
    bits = {"recipe": "gru", "metric": "bpc"}
    small, large, ours = result(1.3, width=0.5, **bits), result(1.1, width=2.0, **bits), result(1.2, "C", **bits)
    study = one([small, large, ours])
    assert study.as_good(study.groups[-1]) == pytest.approx((4e6, 5e8))
    assert not tables.equal_quality_sheet(one([small, ours])).rows
    assert "At equal quality" not in [sheet.title for sheet in tables.sheets(one([small, ours]))]


def test_ablations_stand_beside_the_same_network_and_the_papers_claim():
    study = one(cifar_results())
    sheet = cells(tables.ablations_sheet(study))
    assert set(sheet) == {
        "C, norm whitening", "H, norm whitening", "M2R, lift zeros", "M2R, activation mean-gate",
        "M2R, activation determinant-gate", "H, init polar",
    }  # fmt: skip
    assert sheet["M2R, lift zeros"]["difference"] == "−1.30"
    assert "learned Lift is better" in sheet["M2R, lift zeros"]["the paper says"]
    assert "−2.97 %" in sheet["M2R, activation mean-gate"]["the paper says"]
    assert "worse than −10 %" in sheet["M2R, activation determinant-gate"]["the paper says"]
    assert "74.1 ± 0.15 against 74.0 ± 0.14" in sheet["H, init polar"]["the paper says"]
    assert sheet["H, norm whitening"]["the paper says"].startswith("+0.7 in its table; batch norm trains 1.9x faster")
    assert sheet["H, norm whitening"]["time of a step"] == "1.00x"


def test_times_of_steps_are_compared_without_the_start():
    """One run took longer to compile, the other takes longer for a step."""
    usual = {"epochs": 10.0, "evaluations": 2.0}
    changed = {**usual, "model.norm": "whitening"}
    runs = [
        result(80.0, "C", changes=changes, curve=[{"step": 500.0, "seconds": start}, {"step": 1000.0, "seconds": end}])
        for changes, start, end in ((usual, 40.0, 45.0), (changed, 20.0, 29.0))
    ]
    study = one([result(94.0, "C"), *runs])
    assert [group.first for group in study.rows] == [result(94.0, "C")]
    sheet = cells(tables.ablations_sheet(study))
    assert {name: row["time of a step"] for name, row in sheet.items()} == {
        "C, epochs 10, evaluations 2, norm whitening": "1.80x"
    }
    short = replace(runs[0], curve=runs[0].curve[:1])
    ((_, row),) = cells(tables.ablations_sheet(one([short, runs[1]]))).items()
    assert row["time of a step"] == numbers.NONE


def test_a_variant_that_was_trained_shorter_is_compared_with_the_network_trained_as_long():
    short = {"epochs": 60.0}
    runs = [
        result(94.0, "M2R"),
        result(93.0, "M2R", changes=short),
        result(92.5, "M2R", changes={**short, "model.lift": "zeros"}),
    ]
    study = one(runs)
    assert [study.name(group) for group in study.rows] == ["M2R"]
    sheet = cells(tables.ablations_sheet(study))
    assert set(sheet) == {"M2R, epochs 60, lift zeros"}
    assert sheet["M2R, epochs 60, lift zeros"]["difference"] == "−0.50"


def test_a_change_that_all_runs_share_is_said_once():
    runs = [result(80.0, changes={"steps": 10}), result(79.0, "M2R", changes={"steps": 10})]
    study = one(runs)
    assert [row[0].text for row in tables.rows_sheet(study).rows] == ["R", "M2R"]
    assert not study.ablations
    assert any("steps = 10" in text for text in summary.departures(study))
    assert summary.headline(study).endswith("the real one reaches 80.00 % (all runs: steps = 10).")
    assert "(all runs" not in summary.headline(one([result(80.0)]))


# In words -------------------------------------------------------------------------------------------------------------


def test_the_headline_names_the_smallest_network_that_is_no_worse():
    def runs(algebra, mean, away):
        return [result(mean + (seed - 1) * away, algebra, seed) for seed in range(3)]

    as_good = one([*runs("R", 94.2, 0.1), *runs("C", 94.5, 0.1), *runs("M2R", 94.1, 0.1)])
    assert summary.headline(as_good) == (
        "M2R reaches 94.10 % top-1 accuracy with 25 % of the real network's parameters and 100 % of its multiply-adds; "
        "the real one reaches 94.20 %."
    )
    worse = one([*runs("R", 94.2, 0.01), *runs("C", 94.0, 0.01), *runs("M2R", 93.0, 0.01)])
    assert summary.headline(worse).startswith("C reaches 94.00 %")
    alone = one(runs("H", 94.0, 0.1))
    assert summary.headline(alone) == "H reaches 94.00 % top-1 accuracy with 1.00 M parameters."


def test_the_headline_compares_with_real_networks_that_are_as_good_where_they_are_known():
    reals = [result(value, width=width) for value, width in ((90.0, 0.5), (94.0, 2.0))]
    ours = [result(93.0, "M2R", width=1.0), result(94.0, "M2R", width=2.0), result(92.0, "C")]
    study = one([*reals, *ours])
    assert summary.headline(study) == (
        "M2R needs 18 to 25 % of the parameters and 71 to 100 % of the multiply-adds of a real network that is as good."
    )
    assert [card.figure for card in summary.cards(study)][:2] == ["18 to 25 %", "71 to 100 %"]
    better = one([*reals, *ours, result(95.0, "H", width=0.5)])  # than all that are real: nothing is as good
    assert summary.headline(better).startswith("H x0.5 reaches 95.00 %")


def test_what_was_not_run_is_said():
    text = " ".join(summary.departures(one([result(94.0), result(94.0, "M2R")])))
    assert "not trained here: C batch, C whitening, H batch, H whitening" in text
    assert "one seed only" in text


def test_seeds_of_a_recipe_that_changed_between_them_are_named():
    same = [result(94.0, experiment={"steps": 1, "seed": 0}), result(94.1, seed=1, experiment={"steps": 1, "seed": 1})]
    assert "differ in more than the seed" not in " ".join(summary.departures(one(same)))
    other = [same[0], replace(same[1], experiment={"steps": 2, "seed": 1})]
    assert "as the recipe changed between them: R." in " ".join(summary.departures(one(other)))


def test_markdown_has_every_row_and_is_a_table():
    study = one(cifar_results())
    for sheet in tables.sheets(study):
        lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len(lines) == len(sheet.rows) + 2
        assert {line.count("|") for line in lines} == {len(sheet.headings) + 1}
    strange = tables.Sheet("t", ("a", "b"), ((tables.Cell("x|y"), tables.Cell("1", "worse")),)).markdown()
    assert "| x\\|y | **1** |" in strange
