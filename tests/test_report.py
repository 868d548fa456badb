"""The report's tables and sentences: groups of runs, significance, the paper's figures, pruning."""

import math
import re
from dataclasses import asdict, replace

import pytest
from scipy import stats

from algebranets.algebra import CATALOGUE
from algebranets.lab.report import claim, equal_quality, numbers, page, parts, summary, tables
from algebranets.lab.report.paper import printed, rows
from algebranets.lab.report.pruned import tables as pruned_tables
from algebranets.lab.report.significance import is_significant, standard_error, wilson_interval
from algebranets.lab.report.study import studies
from algebranets.lab.report.words import paragraphs
from algebranets.lab.train.results import Result
from runs import CIFAR, DENSE, cifar_results, pruned, pruned_results, result


def one(results):
    (study,) = studies(results)
    return study


def cells(sheet):
    """Return the sheet as {row: {heading: text}}. Of two columns with the same heading, it has the last."""
    return {row[0].text: dict(zip(sheet.headings, (c.text for c in row), strict=True)) for row in sheet.rows}


# Groups ---------------------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_the_seed_only_are_one_row():
    study = one([result(94.0), result(95.0, seed=1), result(96.0, seed=2), result(90.0, width=0.5)])
    wide, narrow = sorted(study.groups, key=lambda group: -group.first.width)
    assert (wide.mean, wide.deviation, len(wide.results)) == (95.0, 1.0, 3)
    assert (narrow.mean, narrow.deviation, len(narrow.results)) == (90.0, None, 1)
    assert parts.mean_and_deviation(wide) == "95.00 ± 1.00 (3 seeds)"
    assert parts.mean_and_deviation(narrow) == "90.00 (1 seed)"


def test_the_deviation_is_the_sample_standard_deviation():
    (group,) = one([result(94.0), result(94.4, seed=1)]).groups
    assert group.deviation == pytest.approx(0.4 / math.sqrt(2))


def test_recipes_are_apart_and_a_run_given_twice_counts_once():
    found = studies([result(94.0), result(1.3, recipe="gru", metric="bpc"), result(94.0)])
    assert [(study.recipe, len(study.groups[0].results)) for study in found] == [("cifar10", 1), ("gru", 1)]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([result(94.0), result(94.1)], "must have one run per seed; got several of seed 0"),
        ([result(94.0, metric="f1")], "the metric of a run of cifar10 must be one of accuracy, bpc; got 'f1'"),
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
    assert real.deviation is None
    assert parts.mean_and_deviation(real) == "diverged (2 seeds)"
    assert study.finished == [study.groups[1]]
    assert summary.headline(study).startswith("C reaches 93.00 %")


# Significance ---------------------------------------------------------------------------------------------------------


def test_the_standard_error_of_a_difference_is_that_of_welchs_test():
    values, others = [94.0, 94.2, 94.5], [93.1, 94.4]
    t = stats.ttest_ind(values, others, equal_var=False).statistic
    assert (sum(values) / 3 - sum(others) / 2) / standard_error(values, others) == pytest.approx(t)
    t = stats.ttest_1samp(values, 93.0).statistic
    assert (sum(values) / 3 - 93.0) / standard_error(values, 93.0) == pytest.approx(t)


@pytest.mark.parametrize("others", [[93.1, 94.4], [93.9, 94.0, 94.0], [94.1, 94.2, 93.9, 94.3, 94.0], 94.0])
def test_a_difference_is_significant_by_welchs_test_at_5_percent(others):
    found = set()
    for shift in range(-40, 41):
        values = [value + shift / 5 for value in (94.0, 94.2, 94.5)]
        is_printed = isinstance(others, float)
        tested = stats.ttest_1samp(values, others) if is_printed else stats.ttest_ind(values, others, equal_var=False)
        assert is_significant(values, others) == (tested.pvalue < 0.05)
        found.add(is_significant(values, others))
    assert found == {False, True}


def test_with_two_seeds_only_a_large_difference_is_significant():
    """With one degree of freedom, a difference must exceed 12.7 standard errors."""
    error = standard_error([0.0, 2.0], [0.0, 0.0])
    assert error == 1
    for away, expected in ((12.6, False), (12.8, True)):
        for sign in (-1, 1):
            assert is_significant([0.0, 2.0], [1 + sign * away] * 2) == expected
            assert is_significant([1 + sign * away] * 2, [0.0, 2.0]) == expected
            assert is_significant([0.0, 2.0], 1 + sign * away) == expected


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ([94.0], [1.0, 1.1]),
        ([94.0, 94.1], [1.0]),
        ([94.0], 1.0),
        ([94.0, math.nan], [1.0, 1.1]),
        ([94.0, math.inf], 1.0),
        ([94.1, 94.1, 94.1], [1.1, 1.1]),
        ([94.1, 94.1], 1.0),
    ],
)
def test_nothing_is_significant_with_one_seed_after_a_run_diverged_or_without_any_spread(values, others):
    assert standard_error(values, others) is None
    assert not is_significant(values, others)


def test_the_headline_and_the_table_judge_a_difference_alike():
    def runs(algebra, mean, num_seeds):
        return [result(mean + (seed - 1) * 0.1, algebra, seed, recipe="digits") for seed in range(num_seeds)]

    for away, num_seeds, tone, words in (
        (0.2, 3, "", "no significant difference (−0.20)"),
        (0.3, 3, "worse", "significantly worse by 0.30"),
        (-0.3, 3, "better", "significantly better by 0.30"),
        (0.1, 1, "", "worse by 0.10 (the spread over seeds is not known)"),
        (0.0, 3, "", "no difference"),
    ):
        study = one([*runs("R", 94.2, num_seeds), *runs("M2R", 94.2 - away, num_seeds)])
        assert f"{words}. No real network" in summary.headline(study)
        assert tables.rows_sheet(study).rows[1][3].tone == tone


# Intervals of accuracies ----------------------------------------------------------------------------------------------


def on(name, value, algebra="R", seed=0):
    """Return a run whose accuracy was measured on the data set ``name``."""
    run = result(value, algebra, seed, recipe="digits")
    return replace(run, experiment={**run.experiment, "data": {"name": name}})


@pytest.mark.parametrize(("accuracy", "num_test"), [(97.5, 360), (0.0, 360), (100.0, 50), (94.18, 10_000), (50.0, 7)])
def test_the_interval_of_an_accuracy_is_wilsons(accuracy, num_test):
    right = round(accuracy / 100 * num_test)
    theirs = stats.binomtest(right, num_test).proportion_ci(method="wilson")
    ours = wilson_interval(100 * right / num_test, num_test)
    assert ours == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=1e-4)


def test_accuracies_have_an_interval_with_one_seed_too_and_other_metrics_have_none():
    sheet = cells(tables.rows_sheet(one([on("digits", 97.5), on("digits", 95.0, "C"), on("digits", 96.0, "C", 1)])))
    assert sheet["R"]["95 % interval"] == "95.32 to 98.68"
    assert sheet["C"]["95 % interval"] == "92.84 to 97.20"  # of the mean, for 360 images and not for 720
    for study in (one([result(1.2, metric="bpc", recipe="gru")]), one([on("/my/photos", 97.5)])):
        assert study.groups[0].interval is None
        (table,) = tables.sheets(study)
        assert "95 % interval" not in table.headings
        assert "95 % interval" not in " ".join(table.notes)
    assert one([on("digits", math.nan)]).groups[0].interval is None
    assert "of the 360 test images" in " ".join(tables.rows_sheet(one([on("digits", 97.5)])).notes)


@pytest.mark.parametrize(
    ("real", "ours", "words"),
    [
        ([97.78], [97.5], "a difference of −0.28, within the 95 % intervals for 360 test images"),
        ([97.78], [90.0], "worse by 7.78 (the spread over seeds is not known)"),
        ([98.0, 98.1], [97.5, 97.6], "significantly worse by 0.50, but the 95 % intervals for 360 test images overlap"),
        ([98.0, 98.1], [80.0, 80.1], "significantly worse by 18.00. "),
    ],
)  # fmt: skip
def test_the_headline_knows_how_small_the_test_set_is(real, ours, words):
    runs = [on("digits", value, name, seed) for name, v in (("R", real), ("M2R", ours)) for seed, value in enumerate(v)]
    study = one(runs)
    assert f": {words}" in summary.headline(study)
    notes = " ".join(tables.rows_sheet(study).notes)
    assert "not about the choice of test data" in notes
    assert "If the intervals of two networks overlap, their difference may be due to these images" in notes


# Words ----------------------------------------------------------------------------------------------------------------


def test_line_breaks_in_a_name_make_no_paragraphs_and_a_missing_fact_is_an_error():
    odd = "a\n\nb | c"
    (text,) = paragraphs("notes/equal_quality", sizes=[odd, "d"])
    assert text.endswith("(a  b | c, d).")
    with pytest.raises(Exception, match="'sizes' is undefined"):
        paragraphs("notes/equal_quality")
    study = one([result(94.0, changes={"model.lift": odd}), result(93.0, changes={"model.lift": odd}, seed=1)])
    assert all("|" not in card.figure for card in summary.cards(study))


# Beside the paper -----------------------------------------------------------------------------------------------------


def test_all_six_cifar_rows_stand_beside_their_printed_figure():
    study = one(cifar_results())
    found = [group for group in study.groups if group.printed]
    assert {group.printed.row for group in found} == {f"{algebra} {norm}" for algebra, norm in CIFAR}
    sheet = cells(tables.rows_sheet(study))
    for number, (algebra, norm) in enumerate(CIFAR):
        parameters, _, quality = printed.CIFAR[algebra, norm]
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
    for (algebra, tuples), (parameters, _, quality) in printed.WIKITEXT.items():
        found = rows.printed_row("gru", algebra, 0.5, {"hidden_size": tuples * CATALOGUE[algebra].dim})
        assert (found.parameters, found.quality) == (parameters, quality)
    for row, (options, figures_, _) in printed.ENWIK8.items():
        found = rows.printed_row("transformer_xl", options["algebra"], 1.0, options)
        assert (found.row, found.quality) == (row, figures_[3])
    assert rows.printed_row("transformer_xl", "M2R", 1.0, {**printed.EFFICIENT, "num_layers": 24}) is None
    assert rows.printed_row("resnet50", "H", 1.0, {}).quality == "74.0"
    assert rows.printed_row("resnet50", "R", 1.0, {}) is None
    assert rows.printed_row("digits", "R", 1.0, {}) is None


def test_fewer_bits_are_better_and_the_difference_is_ours_less_the_papers():
    runs = [
        result(1.25 + seed / 1000, "R", seed, "gru", metric="bpc", changes={"model.hidden_size": size})
        for seed in range(3)
        for size in (1024, 2048)
    ]
    sheet = tables.rows_sheet(one(runs))
    small, large = (dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows)
    assert small["difference"] == ("−0.089", "differs")
    assert large["difference"] == ("+0.011", "differs")
    assert "less is better" in sheet.notes[0]


def test_no_difference_that_hurts_the_claim_is_green():
    """Fewer bits are better, a loss of accuracy never is, and a real network above the printed one is not praised."""
    for metric, away, tone in (("bpc", -0.1, "better"), ("bpc", 0.1, "worse"), ("accuracy", -0.1, "worse")):
        runs = [
            result(1.2 + (algebra == "M2R") * away + seed / 1000, algebra, seed, recipe="digits", metric=metric)
            for algebra in ("R", "M2R")
            for seed in range(3)
        ]
        cell = tables.rows_sheet(one(runs)).rows[1][3]
        assert cell.tone == tone
        assert cell.words.endswith(f" {tone}")
    study = one(cifar_results())
    assert {row[4].tone for row in tables.rows_sheet(study).rows} <= {"", "differs"}
    assert {row[4].verdict for row in tables.rows_sheet(study).rows} == {""}


def test_a_difference_that_is_not_significant_is_not_marked():
    runs = [result(94.2 + away, seed=seed) for seed, away in enumerate((-0.2, 0.0, 0.4))]
    sheet = tables.rows_sheet(one(runs))
    assert dict(zip(sheet.headings, sheet.rows[0], strict=True))["difference"] == ("+0.07", "")


def test_without_printed_rows_the_real_network_is_the_measure():
    runs = [result(98.0, recipe="digits"), result(97.5, "M2R", recipe="digits")]
    sheet = tables.rows_sheet(one(runs))
    assert sheet.title == "Compared with the real network"
    assert [cell.text for cell in sheet.rows[1]][1:8] == [
        "97.50 (1 seed)", numbers.NONE, "−0.50", "1.00 M", "25 %", "500 M", "100 %",
    ]  # fmt: skip
    assert [cell.text for cell in sheet.rows[0]][3] == numbers.NONE


@pytest.mark.parametrize("algebra", ["R", "M2R"])
def test_tables_of_one_algebra_have_no_columns_of_dashes(algebra):
    study = one([result(98.0 - width, algebra, recipe="digits", width=width) for width in (0.5, 1.0)])
    (sheet,) = tables.sheets(study)
    assert sheet.title == "Networks"
    assert sheet.headings == ("network", "accuracy", "parameters", "multiply-adds", "training time")
    assert "difference" not in " ".join(sheet.notes)
    assert [len(row) for row in sheet.rows] == [5, 5]


def test_the_second_column_of_a_table_is_the_metric_and_no_column_is_without_values():
    found = [sheet for runs in (cifar_results(), pruned_results(1)) for sheet in tables.sheets(one(runs))]
    only_differences = ("Criteria compared with the norm", "Components compared with tuples")
    metrics = [sheet.headings[1] for sheet in found if sheet.title not in only_differences]
    assert metrics == ["accuracy, ours", "accuracy", "accuracy", "accuracy"]
    for sheet in found:
        assert all(any(row[n].text != numbers.NONE for row in sheet.rows) for n in range(len(sheet.headings)))
    words = tables.ablations_sheet(one(cifar_results()))
    compact = replace(words, rows=tuple((*row[:3], parts.Cell(numbers.NONE), *row[4:]) for row in words.rows)).compact()
    assert [compact.headings[n] for n in compact.prose] == ["variant", "the paper says"]


def test_a_real_network_as_good_lies_between_two_that_were_trained():
    """Costs are interpolated by logarithms: halfway from 2 M to 8 M is 4 M. A larger but worse one is left out."""
    reals = [result(value, width=width) for value, width in ((90.0, 0.5), (89.0, 1.0), (94.0, 2.0))]
    runs = [result(92.0, "M2R", width=2.0), result(89.5, "C"), result(95.0, "H"), result(94.0, "C", width=2.0)]
    study = one([*reals, *runs])
    assert [group.first.width for group in equal_quality.real_sizes(study)] == [0.5, 2.0]
    sheet = cells(next(sheet for sheet in tables.sheets(study) if sheet.title == "At equal quality"))
    assert list(sheet) == ["C x2", "M2R x2"]  # not C, which is worse than all real networks, nor H, which is better
    (equal,) = (row for row in tables.equal_quality_sheet(study).rows if row[0].text == "M2R x2")
    assert [cell.text for cell in equal[1:]] == ["92.00", "2.00 M", "4.00 M", "50 %", "1.00 G", "500 M", "200 %"]
    assert sheet["C x2"]["real"] == "1.00 G"


def test_fewer_bits_are_as_good_too_and_one_real_size_tells_nothing():
    bits = {"recipe": "gru", "metric": "bpc"}
    small, large, ours = result(1.3, width=0.5, **bits), result(1.1, width=2.0, **bits), result(1.2, "C", **bits)
    study = one([small, large, ours])
    assert equal_quality.real_cost(study, study.groups[-1]) == pytest.approx((4e6, 5e8))
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
    """One run takes longer to compile, the other takes longer for a step."""
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


def test_a_note_on_the_papers_statements_stands_only_below_a_table_that_has_some():
    for setting, has_claims in (("model.lift", True), ("label_smoothing", False)):
        study = one([result(94.0, "M2R"), result(93.0, "M2R", changes={setting: "zeros"})])
        notes = tables.ablations_sheet(study).notes
        assert any("The paper's statements" in note for note in notes) == has_claims


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
    assert summary.headline(study).endswith(" All runs: steps = 10.")
    assert "All runs" not in summary.headline(one([result(80.0)]))


# Pruned ---------------------------------------------------------------------------------------------------------------


def texts(sheet):
    return [[cell.text for cell in row] for row in sheet.rows]


def seeds(mean, deviation=0.01, **settings):
    """Return three runs with the sample standard deviation ``deviation``."""
    return [pruned(mean + (seed - 1) * deviation, seed=seed, **settings) for seed in range(3)]


def test_rows_are_dense_and_pruned_networks_have_tables_of_their_own():
    study = one(pruned_results())
    assert [study.name(group) for group in study.rows] == list(DENSE)
    assert len(study.pruned) == 27
    assert not study.ablations
    assert not study.lengths
    titles = [sheet.title for sheet in tables.sheets(study)]
    assert titles == [
        "Compared with the real network",
        "Pruned",
        "Criteria compared with the norm",
        "Components compared with tuples",
    ]
    assert not {"Pruned", *titles[2:]} & {sheet.title for sheet in tables.sheets(one(cifar_results()))}


def test_a_pruned_network_stands_beside_the_dense_one_and_says_what_is_left():
    sheet = pruned_tables.pruned_sheet(one([*pruned_results(), pruned(90.0, "M3R")]))
    none = numbers.NONE
    assert ["M2R, 50 %", "94.30 ± 0.01 (3 seeds)", none, "−0.10", "500 k (50 %)", "250 M (50 %)"] in texts(sheet)
    component = ["M2R, unit component, 90 %", "93.60 ± 0.01 (3 seeds)", none, "−0.80", "100 k (10 %)", "500 M (100 %)"]
    assert component in texts(sheet)
    (alone,) = (row for row in texts(sheet) if row[0] == "M3R, 90 %")
    assert alone[1:4] == ["90.00 (1 seed)", none, none]  # no dense one was trained
    assert [row[0] for row in texts(sheet)[:4]] == ["R, 50 %", "R, 70 %", "R, 90 %", "C, 50 %"]


def test_the_recipe_that_prunes_and_the_one_that_was_told_to_say_the_same():
    """One recipe prunes and has a dense run as a change. The other is dense and has a pruned run as a change."""
    own = one([pruned(93.0), pruned(94.0, sparsity=0.0)])
    told = one([result(93.0, "M2R", changes={"pruning.sparsity": 0.9}), result(94.0, "M2R")])
    assert texts(pruned_tables.pruned_sheet(own)) == texts(pruned_tables.pruned_sheet(told))
    assert texts(pruned_tables.pruned_sheet(own))[0][3] == "−1.00"
    assert own.is_about_pruning
    assert not told.is_about_pruning
    assert summary.headline(told).startswith("M2R reaches 94.00 % top-1 accuracy with 1.00 M parameters and 500 M")


def test_dense_runs_are_one_network_whatever_would_have_been_pruned():
    study = one([pruned(94.0, sparsity=0.0), pruned(94.2, seed=1, sparsity=0.0, unit="component")])
    assert [len(group.results) for group in study.groups] == [2]


def test_a_pruned_network_is_compared_with_the_dense_one_of_its_width_and_norm():
    changes = {"model.norm": "whitening"}
    own = {"algebra": "H", "recipe": "cifar10-pruned"}
    runs = [result(90.0, width=0.5, changes=changes, **own)]
    for value, width, more in ((94.0, 1.0, changes), (93.0, 0.5, {}), (92.0, 0.5, changes)):
        runs.append(result(value, width=width, changes={**more, "pruning.sparsity": 0.0}, **own))
    assert [row[3] for row in texts(pruned_tables.pruned_sheet(one(runs)))] == ["−2.00"]


def test_criteria_stand_beside_the_norm_and_the_papers_table_4():
    sheet = pruned_tables.criteria_sheet(one(pruned_results()))
    assert sheet.headings[1::2] == ("largest eigenvalue", "determinant", "smallest eigenvalue")  # best first
    assert texts(sheet) == [
        ["M2R, 50 %", "−0.05", "−0.02", "−0.02", "−0.27", "−0.20", "−0.76"],
        ["M2R, 70 %", "−0.20", "−0.57", "−0.40", "−1.26", "−0.80", "−1.71"],
        ["M2R, 90 %", "−0.80", "−0.73", "−1.60", "−2.69", "−3.20", "−3.558"],
    ]
    assert sheet.rows[0][1].tone == "worse"
    assert sheet.rows[0][3].tone == ""  # 0.02, with a standard error of 0.008 and four degrees of freedom
    assert sheet.notes[1] == (
        "The paper's order at every sparsity, best first: norm, largest eigenvalue, determinant, smallest eigenvalue. "
        "Our means of the criteria that were run are in that order for M2R, 70 %; M2R, 90 %. They are in another order "
        "for M2R, 50 % (norm, determinant, largest eigenvalue, smallest eigenvalue)."
    )


def test_the_papers_order_is_that_of_its_table_at_every_sparsity():
    for figures in printed.CRITERIA.values():
        lost = {"norm": 0.0, **{name: -float(figure) for name, figure in figures.items()}}
        assert sorted(lost, key=lost.get) == rows.ranked_criteria()


@pytest.mark.parametrize(
    ("means", "note"),
    [
        ({"norm": 93.0, "determinant": 92.0}, "of the criteria that were run are in that order for M2R, 90 %."),
        ({"norm": 92.0, "determinant": 93.0}, "Our means are in another order for M2R, 90 % (determinant, norm)."),
        (
            {"determinant": 92.0, "smallest-eigenvalue": 91.0},
            "of the criteria that were run are in that order for M2R, 90 %.",
        ),
        ({"norm": 92.0, "determinant": math.nan}, None),
        ({"determinant": 92.0}, None),
    ],
)
def test_the_note_on_order_is_of_what_was_run_to_the_end(means, note):
    runs = [pruned(mean, **({} if name == "norm" else {"criterion": name})) for name, mean in means.items()]
    sheet = pruned_tables.criteria_sheet(one(runs))
    assert [text.endswith(note) for text in sheet.notes[1:]] == ([True] if note else [])


def test_criteria_that_were_not_run_or_are_not_the_papers_are_none():
    settings = {"sparsity": 0.6, "criterion": "determinant"}
    runs = [pruned(93.0, sparsity=0.6), pruned(92.0, **settings), pruned(91.0, "H", **settings)]
    sheet = pruned_tables.criteria_sheet(one([*runs, pruned(90.0, criterion="trace")]))
    none = numbers.NONE
    assert sheet.headings[-2:] == ("trace", "paper")
    assert [row[:5] for row in texts(sheet)] == [
        ["M2R, 60 %", none, none, "−1.00", none],  # this table of the paper has no 60 %
        ["M2R, 90 %", none, "−0.73", none, "−2.69"],  # no run has the norm at 90 %
        ["H, 60 %", none, none, none, none],
    ]
    assert not pruned_tables.criteria_sheet(one([pruned(93.0), pruned(92.0, unit="component")])).rows


def test_components_stand_beside_tuples_and_the_papers_table_5():
    runs = [*pruned_results(), pruned(94.1, "C", unit="component"), pruned(94.1, "H", sparsity=0.6, unit="component")]
    sheet = pruned_tables.components_sheet(one(runs))
    none = numbers.NONE
    assert sheet.headings == ("sparsity", "C", "M2R", "paper", "H", "paper")
    assert texts(sheet) == [
        ["50 %", none, "+0.05", "+0.20", "+0.05", "+0.18"],
        ["60 %", none, none, "+0.37", none, "+0.32"],
        ["70 %", none, "+0.20", "+0.58", "+0.20", "+0.49"],
        ["90 %", "+1.50", "+0.80", "+2.13", "+0.80", "+1.64"],
    ]
    assert [cell.tone for cell in sheet.rows[-1]] == ["", "", "better", "", "better", ""]  # C has one seed
    assert sheet.notes[1].endswith("here in 7 of 7 cases, significantly in 6.")
    assert min(float(figure) for row in printed.COMPONENTS.values() for figure in row.values()) > 0


def test_what_is_written_as_no_difference_is_not_better():
    sheet = pruned_tables.components_sheet(one([pruned(92.0), pruned(92.004, unit="component")]))
    assert texts(sheet)[0][1] == "0.00"
    assert sheet.notes[1].endswith("here in 0 of 1 cases, significantly in 0.")


@pytest.mark.parametrize(("deviation", "tone"), [(0.19, "better"), (0.21, "")])
def test_half_a_percent_is_significant_where_it_is_more_than_4_3_standard_errors(deviation, tone):
    """Nearly all of the variance is on one side with three seeds, so there are two degrees of freedom."""
    runs = [*seeds(92.0, 0.01), *seeds(92.5, deviation, unit="component")]
    assert pruned_tables.components_sheet(one(runs)).rows[0][1] == ("+0.50", tone)


def test_fewer_bits_are_better_when_pruned_too_and_are_no_figures_of_the_paper():
    kinds = {"norm": 1.5, "determinant": 1.4}
    changes = {name: {"pruning.sparsity": 0.9, "pruning.criterion": name} for name in kinds}
    changes["norm"].pop("pruning.criterion")
    text = {"algebra": "M2R", "recipe": "gru", "metric": "bpc"}
    study = one([result(kinds[name], changes=changes[name], **text) for name in kinds])
    sheet = pruned_tables.criteria_sheet(study)
    assert texts(sheet)[0][3:5] == ["−0.100", numbers.NONE]
    assert sheet.notes[1].endswith("M2R, 90 % (determinant, norm).")
    pair = [result(1.4, changes={"pruning.sparsity": 0.9, "pruning.unit": "component"}, **text), study.groups[0].first]
    assert pruned_tables.components_sheet(one(pair)).headings == ("sparsity", "M2R")
    assert pruned_tables.components_sheet(one(pair)).notes[1].endswith("here in 1 of 1 cases, significantly in 0.")


def test_rows_of_before_what_is_left_was_counted_still_load():
    old = {key: value for key, value in asdict(pruned(93.0)).items() if key not in ("nonzero", "multiplies_left")}
    run = Result.from_dict(old, "here")
    assert (run.nonzero, run.multiplies_left) == (None, None)
    (row,) = texts(pruned_tables.pruned_sheet(one([run])))
    assert row == ["M2R, 90 %", "93.00 (1 seed)", *[numbers.NONE] * 4]
    for wrong, found in (({"nonzero": 1.5}, "nonzero"), ({"multiplies_left": "all"}, "multiplies_left")):
        with pytest.raises(ValueError, match=f"no result of algebranets: {found} must be a whole number"):
            Result.from_dict({**old, **wrong}, "here")
    without_seed = {key: value for key, value in old.items() if key != "seed"}
    for wrong, found in (({**old, "zeros": 1}, "it has no option 'zeros'"), (without_seed, "the option 'seed'; it is")):
        with pytest.raises(ValueError, match=f"here is no result of algebranets: .*{found}"):
            Result.from_dict(wrong, "here")


def test_older_rows_that_do_not_name_a_setting_have_the_usual_one():
    old = pruned(93.0)
    old = replace(old, experiment={**old.experiment, "pruning": {"sparsity": 0.9}})
    study = one([old, pruned(94.0, seed=1), pruned(92.0, unit="component")])
    assert [(group.unit, group.mean) for group in study.groups] == [("tuple", 93.5), ("component", 92.0)]
    assert "differ in more than the seed" not in " ".join(summary.departures(study))
    other = replace(old, seed=2, experiment={**old.experiment, "pruning": {"sparsity": 0.9, "every": 7}})
    twice = [other, replace(other, seed=3, experiment={**other.experiment, "pruning": {"sparsity": 0.9, "every": 8}})]
    assert "differ in more than the seed" in " ".join(summary.departures(one(twice)))


# In words -------------------------------------------------------------------------------------------------------------


def sized(value, algebra, parameters, multiplies, seed=0, **fields):
    """Return a run of a network with these costs, in millions. Its width is the root of the multiply-adds."""
    fields = {"recipe": "digits", "width": math.sqrt(multiplies), **fields}
    made = result(value, algebra, seed, **fields)
    return replace(made, parameters=round(1e6 * parameters), multiplies=round(1e6 * multiplies))


def test_the_headline_compares_at_equal_multiply_adds_and_at_equal_parameters():
    """Without the recipe's own size, the largest networks are compared, not those that make the claim look best."""
    runs = [sized(90.0, "R", 2, 2), sized(94.0, "R", 4, 4), sized(95.0, "R", 8, 8)]
    runs += [sized(93.5, "M2R", 2.04, 4.1), sized(94.5, "M2R", 4.1, 8.2), sized(99.0, "M2R", 5.2, 10.4)]
    runs += [sized(99.5, "C", 2, 4), sized(99.9, "M2R", 4, 8, changes={"model.norm": "whitening"})]
    study = one(runs)
    assert summary.headline(study) == (
        "At equal multiply-adds (102 %), M2R x2.86356 reaches 94.50 % top-1 accuracy with 51 % of the parameters of "
        "R x2.82843, which reaches 95.00 %: worse by 0.50 (the spread over seeds is not known). "
        "At equal parameters (102 %), M2R x2.86356 reaches 94.50 % top-1 accuracy with 205 % of the multiply-adds of "
        "R x2, which reaches 94.00 %: better by 0.50 (the spread over seeds is not known)."
    )
    assert [card.figure for card in summary.cards(study)] == ["−0.50", "51 %", "+0.50", "205 %", "8 runs"]


def test_the_headline_prefers_the_recipes_own_size_to_a_nearer_pair():
    reals = [sized(90.0, "R", 2, 1), sized(95.0, "R", 8, 4)]
    ours = [sized(91.0, "M2R", 1, 1.08), sized(92.0, "M2R", 1, 1.05), sized(96.0, "M2R", 4, 4)]
    study = one([*reals, *ours])
    assert [(study.name(pair.ours), study.name(pair.real)) for pair in claim.pairs(study)] == [("M2R x1.0247", "R")]


def test_the_headline_says_which_comparison_the_runs_do_not_allow():
    near = one([sized(1.2, "R", 4, 4, metric="bpc"), sized(1.3, "M2R", 1, 4.3, metric="bpc")])
    assert summary.headline(near) == (
        "At equal multiply-adds (108 %), M2R x2.07364 reaches 1.300 bits per character with 25 % of the parameters of "
        "R x2, which reaches 1.200: worse by 0.100 (the spread over seeds is not known). No real network with equal "
        "parameters was trained."
    )
    neither = one([sized(94.0, "R", 4, 1, width=1.0), sized(95.0, "R", 8, 4), sized(93.0, "M2R", 1, 0.5, width=1.0)])
    assert summary.headline(neither) == (
        "M2R reaches 93.00 % top-1 accuracy with 25 % of the parameters and 50 % of the multiply-adds of R, which "
        "reaches 94.00 %: worse by 1.00 (the spread over seeds is not known). No real network with equal multiply-adds "
        "or equal parameters was trained."
    )
    other = one([result(94.0), result(93.0, "H"), result(99.0, "C")])
    assert summary.headline(other).startswith("At equal multiply-adds, C reaches 99.00 %")  # the first of the catalogue
    assert summary.headline(other).endswith("M2R, the algebra of the paper's claim, was not trained.")


def test_the_headline_of_one_algebra_compares_nothing():
    alone = [result(94.0 + width, "H", width=width) for width in (0.5, 1.0, 2.0)]
    assert summary.headline(one([*alone, result(99.0, "H", changes={"model.norm": "whitening"})])) == (
        "H reaches 95.00 % top-1 accuracy with 1.00 M parameters and 500 M multiply-adds. No real network was trained "
        "to compare it with."
    )
    assert summary.headline(one([result(94.0)])).endswith(
        "Only real networks were trained, so there is no comparison with an algebra."
    )
    assert [card.figure for card in summary.cards(one([on("digits", 97.5)]))] == ["97.50 %", "4.00 M", "1 run"]
    assert summary.cards(one([on("digits", 97.5)]))[0].meaning == (
        "top-1 accuracy, R, 1 seed; 95 % interval for 360 test images: 95.32 to 98.68"
    )


def test_the_headline_of_a_pruning_study_is_about_a_pruned_network():
    study = one(pruned_results())
    assert summary.headline(study) == (
        "M2R with 90 % of its tuples pruned reaches 92.80 % top-1 accuracy. Compared with the dense network: "
        "significantly worse by 1.60. With as many components pruned it reaches 93.60 %. The real network, "
        "pruned as much, reaches 92.40 %."
    )
    assert [card.figure for card in summary.cards(study)] == ["92.80 %", "−1.60", "10 %", "10 %", "93 runs"]


@pytest.mark.parametrize(
    ("runs", "headline"),
    [
        ([pruned(93.0)], "M2R with 90 % of its tuples pruned reaches 93.00 % top-1 accuracy."),
        ([pruned(93.0, "R", sparsity=0.5)], "R with 50 % of its weights pruned reaches 93.00 % top-1 accuracy."),
        (
            [pruned(93.0, unit="component"), pruned(93.0, sparsity=0.0)],
            "M2R with 90 % of its components pruned reaches 93.00 % top-1 accuracy. Compared with the dense network: "
            "no difference.",
        ),
        (
            [pruned(94.5, sparsity=0.7, criterion="determinant"), pruned(94.0, sparsity=0.0), pruned(math.nan)],
            "M2R, criterion determinant with 70 % of its tuples pruned reaches 94.50 % top-1 accuracy. Compared with "
            "the dense network: better by 0.50 (the spread over seeds is not known).",
        ),
        ([pruned(math.nan)], "No network of this recipe finished training without diverging."),
        (
            [pruned(math.nan), pruned(94.0, sparsity=0.0)],
            "M2R reaches 94.00 % top-1 accuracy with 1.00 M parameters and 500 M multiply-adds. No real network was "
            "trained to compare it with.",
        ),
    ],
)
def test_the_headline_is_true_of_any_part_of_a_pruning_study(runs, headline):
    study = one(runs)
    assert summary.headline(study) == headline
    assert summary.cards(study)[-1].figure == f"{len(runs)} run{'s' if len(runs) > 1 else ''}"


def test_what_differs_from_the_paper_counts_pruned_rows():
    text = " ".join(summary.departures(one([pruned(93.0), *seeds(94.0, sparsity=0.0)])))
    assert "only signs and orders can be compared" in text
    assert "M2R, sparsity 0.9: one seed only" in text
    assert "which differs from the recipe" not in text
    many = [pruned(93.0, sparsity=n / 100) for n in range(10, 20)]
    assert "10 of 11 rows: one seed only" in " ".join(summary.departures(one([*many, *seeds(94.0, sparsity=0.0)])))


def test_what_was_not_run_is_said():
    text = " ".join(summary.departures(one([result(94.0), result(94.0, "M2R")])))
    assert "that were not trained: C batch, C whitening, H batch, H whitening" in text
    assert "one seed only" in text


def test_seeds_of_a_recipe_that_changed_between_them_are_named():
    same = [result(94.0, experiment={"steps": 1, "seed": 0}), result(94.1, seed=1, experiment={"steps": 1, "seed": 1})]
    assert "differ in more than the seed" not in " ".join(summary.departures(one(same)))
    other = [same[0], replace(same[1], experiment={"steps": 2, "seed": 1})]
    assert "because the recipe changed between them: R." in " ".join(summary.departures(one(other)))


def test_markdown_has_every_row_and_is_a_table():
    study = one(cifar_results())
    for sheet in tables.sheets(study):
        lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len(lines) == len(sheet.rows) + 2
        assert {line.count("|") for line in lines} == {len(sheet.headings) + 1}
    strange = parts.Sheet("t", ("a", "b"), ((parts.Cell("x|y"), parts.Cell("1", "worse")),)).markdown()
    assert "| x\\|y | **1** worse |" in strange
