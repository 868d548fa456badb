"""The report's figures, its page, the command that writes it, and the page in a browser."""

import io
import json
import math
import re
import shutil
from dataclasses import asdict, replace
from email.message import Message
from html.parser import HTMLParser

import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from algebranets.algebra import CATALOGUE
from algebranets.lab.cli import app, terminal
from algebranets.lab.cli import report as command
from algebranets.lab.cli.terminal import console
from algebranets.lab.drawing import style
from algebranets.lab.report import figures, page, parts, summary, tables
from algebranets.lab.report.pruned import figures as pruned_figures
from algebranets.lab.report.study import studies
from algebranets.lab.report.words import environment
from boxes import message_in_box
from runs import cifar_results, pruned, pruned_results, result


def only(results):
    (study,) = studies(results)
    return study


# Figures --------------------------------------------------------------------------------------------------------------


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one_, other):
    low, high = sorted((luminance(one_), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colors_stand_out_from_light_and_dark_pages():
    template, *_ = environment().loader.get_source(environment(), "style.css")
    backgrounds = re.findall(r"--card: (#\w{6})", template)
    assert len(backgrounds) == 3  # by day, by night and in print
    for color in style.COLORS[1:]:
        assert all(contrast(color, background) >= 3 for background in backgrounds), color
    assert len(set(style.COLORS)) == len(CATALOGUE)


def test_figures_are_the_same_each_time_and_carry_no_fixed_ink():
    study = only(cifar_results())
    text = figures.trade_off(study)
    assert text == figures.trade_off(study)
    assert style.INK not in text
    assert "currentColor" in text
    assert "metadata" not in text
    assert "C, norm whitening 94.20 at 2.00 M parameters and 500 M multiply-adds" in text


def described(svg):
    return re.search(r'aria-label="([^"]*)"', svg)[1]


def test_pruned_networks_are_drawn_from_the_dense_one_on():
    runs = [result(76.0, "M2R", recipe="resnet50"), result(75.0, "C", recipe="resnet50")]
    assert pruned_figures.quality_left(only(runs)) is None
    runs += [result(76 - s, "M2R", recipe="resnet50", changes={"pruning.sparsity": s}) for s in (0.9, 0.5)]
    runs += [result(75.8, "M2R", recipe="resnet50", changes={"pruning.sparsity": 0.5, "pruning.unit": "component"})]
    text = pruned_figures.quality_left(only(runs))
    assert described(text) == (
        "top-1 accuracy: M2R 76.00 at 0 %, 75.50 at 50 %, 75.10 at 90 %; M2R, unit component 76.00 at 0 %, 75.80 at "
        "50 %."
    )
    for label in pruned_figures.MEASURES.values():
        assert f">{label}<" in text


def test_a_recipe_that_prunes_is_drawn_where_it_prunes_to():
    runs = [result(70.0 + n, algebra, recipe="resnet50-pruned") for n, algebra in enumerate(("R", "M2R"))]
    assert described(pruned_figures.quality_left(only(runs))) == "top-1 accuracy: R 70.00 at 90 %; M2R 71.00 at 90 %."
    runs += [result(76.0, recipe="resnet50-pruned", changes={"pruning.sparsity": 0.0})]
    assert "R 76.00 at 0 %, 70.00 at 90 %" in pruned_figures.quality_left(only(runs))
    assert pruned_figures.quality_left(only([result(math.nan, recipe="resnet50-pruned")])) is None


def test_what_is_left_is_drawn_where_it_was_counted():
    """Older results lack the counts. For a dense network they are its parameters; for a pruned one they are unknown."""
    dense, half, most = (pruned(94.0 - s, sparsity=s) for s in (0.0, 0.5, 0.9))
    old = {"nonzero": None, "multiplies_left": None}
    none = only([dense, replace(half, **old)])
    assert pruned_figures.quality_left(none, ("nonzero",)) is None
    joint = pruned_figures.quality_left(none)
    assert ">sparsity, %<" in joint
    assert ">parameters not zero<" not in joint
    (line,) = pruned_figures._lines(one := only([replace(dense, **old), replace(half, **old), most]), one.pruned)
    for measure, places in (("nonzero", [1e6, 1e5]), ("multiplies_left", [5e8, 5e7]), ("sparsity", [0, 50, 90])):
        assert [place for place, _ in pruned_figures._places(line.groups, measure)] == pytest.approx(places)


def test_criteria_have_a_panel_of_their_own():
    study = only(pruned_results())
    assert "criterion" not in pruned_figures.quality_left(study)
    lines = described(pruned_figures.criteria(study)).split("; ")
    assert len(lines) == 4  # M2R's, not the other algebras'
    assert lines[0] == "top-1 accuracy: M2R 94.40 at 0 %, 94.30 at 50 %, 94.00 at 70 %, 92.80 at 90 %"
    assert pruned_figures.criteria(only([pruned(93.0)])) is None


def test_pruned_networks_do_not_flood_the_page(tmp_path):
    text = page.write(pruned_results(1), tmp_path).read_text()
    names = "R, C, M2R, H, R, sparsity 0.9, C, sparsity 0.9, M2R, sparsity 0.9, H, sparsity 0.9"
    assert (
        described((tmp_path / "cifar10-pruned" / "cifar10-pruned-curves.svg").read_text())
        == f"top-1 accuracy by epoch: {names}."
    )
    drawn = {path.stem.removeprefix("cifar10-pruned-") for path in tmp_path.rglob("*.svg")}
    assert drawn == {"sparsity", "nonzero", "multiplies-left", "criteria", "pruning", "curves", "curves-loss"}
    for heading in ("Criteria compared with the norm", "Components compared with tuples", "Quality of pruned networks"):
        assert f"<h2>{heading}</h2>" in text
    assert "<h2>Pruned</h2>" in text


@pytest.mark.parametrize("settings", [{}, {"unit": "component"}, {"criterion": "determinant"}, {"sparsity": 0.0}])
def test_a_study_of_one_run_has_a_page(settings, tmp_path):
    text = page.write([pruned(93.0, **settings)], tmp_path).read_text()
    assert "<title>AlgebraNets report: CIFAR-10, pruned</title>" in text
    assert ("<h2>Pruned</h2>" in text) == ("sparsity" not in settings)


def test_algebras_of_ones_own_look_like_no_other():
    names = ["R", "C", "clifford(2,0,0)", "clifford(1,1,0)", "split", "M3R"]
    places = style.places(names)
    assert set(places) == set(names)
    assert len({style.line_style(place)["color"] for place in places.values()}) == len(names)
    assert len({style.mark_style(place)["marker"] for place in places.values()}) == len(names)
    assert style.places(["C"])["C"] == places["C"]  # whatever else is drawn


def test_printed_figures_are_tied_to_ours():
    """The paper's figures for two rows of C have the same hollow mark. A line connects each with our row."""
    with_paper, without = (figures.trade_off(only(runs), ("parameters",)) for runs in (
        [result(94.0, "C"), result(94.5, "C", changes={"model.norm": "whitening"})],
        [result(94.0, "C", recipe="digits"), result(94.5, "C", recipe="digits", changes={"model.norm": "whitening"})],
    ))  # fmt: skip
    assert with_paper.count("opacity: 0.6") == without.count("opacity: 0.6") + 2


def test_learning_curves_of_an_ablation_stand_beside_the_network_it_is_compared_with(tmp_path):
    page.write([*cifar_results(), result(94.2, "M2R", changes={"epochs": 300.0, "model.lift": "copy"})], tmp_path)
    drawn = [path.read_text() for path in sorted(tmp_path.rglob("*ablation-curves*"))]
    rows = ["M2R", "M2R, activation determinant-gate", "M2R, activation mean-gate", "M2R, lift zeros"]
    assert [re.search(r'aria-label="([^"]*)"', text)[1] for text in drawn] == [
        f"top-1 accuracy by epoch: {', '.join(names)}." for names in (rows, ["H", "H, init polar"])
    ]


def texts(length=None, **fields):
    """Return a run on text, with a step of 16 x 512 characters every two seconds."""
    changes = {} if length is None else {"steps": length}
    run = result(1.2, recipe="transformer_xl-short", metric="bpc", changes=changes, **fields)
    return replace(run, experiment={**run.experiment, "data": {"batch_size": 16, "length": 512}})


@pytest.mark.parametrize(("seconds", "unit"), [(2.0, "seconds"), (2.5, "minutes")])
def test_texts_are_drawn_by_characters_and_by_time(tmp_path, seconds, unit):
    """Curves are in panels and in one figure, with a run of the usual length and one that was trained for longer.

    Times are in seconds if no run takes more than 120 of them. Each run has 50 steps.
    """
    longest = texts(80)
    longest = replace(longest, curve=[{**row, "seconds": seconds * row["step"]} for row in longest.curve])
    page.write([texts(), longest, texts(algebra="M2R")], tmp_path)
    names = "R, M2R, R, steps 80"
    for file, clock in (
        ("curves", "characters"),
        (f"curves-{unit}", unit),
        ("learning", f"characters and by {unit}"),
    ):
        text = (tmp_path / "transformer_xl-short" / f"transformer_xl-short-{file}.svg").read_text()
        assert re.search(r'aria-label="([^"]*)"', text)[1] == f"bits per character by {clock}: {names}."
    assert (
        "400 k" in (tmp_path / "transformer_xl-short" / "transformer_xl-short-curves.svg").read_text()
    )  # 50 steps of 8,192
    table = (tmp_path / "transformer_xl-short" / "tables.md").read_text()
    assert "| R, steps 80 | 1.200 (1 seed) | 1.200 (1 seed) |" in table  # beside R as the recipe trains it


def test_seeds_without_a_step_in_common_are_drawn_apart(tmp_path):
    """Runs with a time budget may have no step in common. The bold line is that of the first seed."""
    moved = [{**row, "step": row["step"] + 1} for row in texts(seed=1).curve]
    page.write([texts(), replace(texts(seed=1), curve=moved)], tmp_path)
    assert (tmp_path / "transformer_xl-short" / "transformer_xl-short-learning.svg").exists()


def test_two_points_are_no_learning_curve(tmp_path):
    run = result(94.0)
    for length in (3, 2):
        page.write([replace(run, curve=run.curve[:length])], tmp_path / str(length))
    assert len(list(tmp_path.glob("3/*/*-curves*.svg"))) == 2
    assert not list(tmp_path.glob("2/*/*-curves*.svg"))


def test_panels_are_counted_as_they_are_drawn(tmp_path):
    timed = [result(88.0, "C", changes={"epochs": 10.0, **norm}) for norm in ({}, {"model.norm": "whitening"})]
    page.write([*cifar_results(), *(replace(run, curve=run.curve[:2]) for run in timed)], tmp_path)
    assert [path.stem[-1] for path in sorted(tmp_path.rglob("*ablation-curves*"))] == ["1", "2"]


# The page -------------------------------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Collects the tags, ids, references and headings of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.references, self.headings = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.references.append(value)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    changes = {"model.activation": "determinant-gate", "label_smoothing": 0.1, "optimizer.weight_decay": 0.0005}
    runs = [*cifar_results(), *(result(93.0, "M2R", seed, changes=changes) for seed in range(3))]
    runs = [replace(run, experiment={**run.experiment, "data": {"name": "cifar10"}}) for run in runs]
    runs += pruned_results()
    runs += [result(1.3, recipe="gru", metric="bpc", changes={"model.hidden_size": 1024})]
    assert page.write(runs, folder) == folder / "index.html"
    return folder


def test_each_study_has_a_folder_and_several_have_an_index(written, tmp_path):
    assert {path.name for path in written.iterdir()} == {"index.html", "cifar10", "cifar10-pruned", "gru"}
    links = [reference for reference in Outline((written / "index.html").read_text()).references if "/" in reference]
    studies_ = [f"{name}/report.html" for name in ("cifar10", "cifar10-pruned", "gru")]
    assert [link for link in links if not link.startswith("http")] == studies_
    assert all((written / link).exists() for link in studies_)
    assert "../index.html" in Outline((written / "gru" / "report.html").read_text()).references
    for recipe in ("cifar10", "digits"):
        run = replace(result(94.0, recipe=recipe), curve=[])
        assert page.write([run], tmp_path) == tmp_path / recipe / "report.html"
    assert {path.name for path in tmp_path.iterdir()} == {"cifar10", "digits"}
    assert "index.html" not in (tmp_path / "digits" / "report.html").read_text()
    with pytest.raises(ValueError, match="must differ in letters or digits; got a b, a-b"):
        page.write([replace(result(94.0, recipe=recipe), curve=[]) for recipe in ("a b", "a-b")], tmp_path)


def test_an_index_from_before_is_replaced(tmp_path):
    """Other pages link to it. It lists only what was written last."""
    runs = [replace(result(94.0, recipe=recipe), curve=[]) for recipe in ("cifar10", "digits")]
    assert page.write(runs, tmp_path) == tmp_path / "index.html"
    assert page.write(runs[1:], tmp_path) == tmp_path / "digits" / "report.html"
    text = (tmp_path / "index.html").read_text()
    assert [link for link in Outline(text).references if "report.html" in link] == ["digits/report.html"]
    assert "<h1>1 study</h1>" in text
    assert "../index.html" in Outline((tmp_path / "digits" / "report.html").read_text()).references
    (tmp_path / "index.html").write_text("<title>My pages</title>")
    page.write(runs[1:], tmp_path)
    with pytest.raises(ValueError, match=r"several recipes need .*index\.html .* Choose another folder with --out"):
        page.write(runs, tmp_path)
    assert (tmp_path / "index.html").read_text() == "<title>My pages</title>"


@pytest.mark.parametrize("name", ["cifar10", "cifar10-pruned", "gru"])
def test_the_page_holds_everything_and_asks_for_nothing(written, name):
    text = (written / name / "report.html").read_text()
    outline = Outline(text)
    site = page.documentation_site()
    assert all(
        reference.startswith(("#", "data:")) or reference in ("../index.html", site) for reference in outline.references
    )
    assert "script" not in outline.tags
    assert not re.search(r"@import|url\((?!#)", text)
    addresses = set(re.findall(r'(\S+)="https?://', text))
    assert addresses <= {"xmlns", "xmlns:xlink", *(["href"] if site else [])}
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1
    assert all(after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    wanted = ["What differs", "How the runs"]
    wanted += ["Compared with the paper", "Ablations", "Quality and cost", "Learning curves"] * (name == "cifar10")
    for heading in wanted:
        assert f"<h2>{heading}" in text


def test_the_page_links_to_the_site_that_the_package_names(monkeypatch, tmp_path):
    def links(*entries):
        described = Message()
        for entry in entries:
            described["Project-URL"] = entry
        monkeypatch.setattr("importlib.metadata.metadata", lambda _: described)
        text = page.write([replace(result(94.0), curve=[])], tmp_path).read_text()
        return {link for link in Outline(text).references if "//" in link}

    assert links("Source, https://a/b", "Documentation, https://c/d/", "Homepage, https://e/") == {"https://c/d/"}
    assert links("Source, https://a/b", "Homepage, https://e/") == {"https://e/"}
    assert links("Source, https://a/b") == set()


def test_the_results_beside_the_pages_make_them_again(written, tmp_path):
    rows = [str(written / name / "rows.jsonl") for name in ("cifar10", "cifar10-pruned", "gru")]
    ran = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["report", *rows, "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    names = {path.relative_to(written) for path in written.rglob("*") if path.is_file()}
    found = {path.name for path in names if path.parent.name == "cifar10"}
    assert {"report.html", "tables.md", "rows.jsonl", "cifar10-trade-off.svg", "cifar10-curves.svg"} <= found
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (written / name).read_bytes(), name


def test_what_a_run_says_of_itself_is_no_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    runs = [result(94.0), result(93.0, changes={"model.lift": evil}, command=f"{evil} $x_1$", environment={evil: evil})]
    text = page.write(runs, tmp_path / "one").read_text()
    assert "script" not in Outline(text).tags
    assert "&lt;script&gt;alert(1)" in text
    text = page.write([result(94.0, recipe="../../a b<i>")], tmp_path / "two" / "deep").read_text()
    assert "i" not in Outline(text).tags
    folders = {tmp_path / "one" / "cifar10", tmp_path / "two" / "deep" / "-a-b-i-"}
    assert {path.parent for path in tmp_path.rglob("*.svg")} == folders


# The command ----------------------------------------------------------------------------------------------------------


def report(*arguments):
    return CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["report", *map(str, arguments)])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_command_prints_tables_that_fit_and_break_no_word(columns, tmp_path, monkeypatch):
    runs = [replace(run, experiment={**run.experiment, "data": {"name": "cifar10"}}) for run in cifar_results()]
    for number, run in enumerate(runs):
        run.save(tmp_path / "runs" / str(number) / "result.json")
    monkeypatch.setattr(console, "_width", columns)
    monkeypatch.setattr(page, "write", lambda results, folder: folder / results[0].recipe)  # no figures
    ran = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    lines = ran.stdout.splitlines()
    assert max(map(len, [line for line in lines if not line.startswith("The page")])) <= columns
    assert "…" not in ran.stdout
    printed = set(ran.stdout.split())
    (study,) = studies(runs)
    for sheet in tables.sheets(study):
        texts = [*sheet.headings, *(cell.words for row in sheet.rows for cell in row)]
        whole = {word for text in texts for word in text.replace("multiply-adds", "multiply- adds").split()}
        assert whole - {"multiply-", "adds"} <= printed
    rows = [" ".join(line.split()) for line in lines]
    quality, cost = "M2R 94.30 ± 0.01 93.83 to 94.74 94.3 0.00 1.00 M", "0.94 M 500 M 1.7 min"
    assert f"{quality} {cost}" in rows or {quality, f"M2R {cost}"} <= set(rows)
    assert ("compared with the paper, continued" in ran.stdout) == (columns == 80)
    assert f"The page: {tmp_path / 'out' / 'cifar10'}" in ran.stdout
    said = " ".join(ran.stdout.split())
    notes = [note for sheet in tables.sheets(study) for note in sheet.notes]
    assert all(text in said for text in (*notes, summary.headline(study)))


@pytest.mark.parametrize(("tone", "codes"), [("better", "1;32"), ("worse", "1;31"), ("differs", "1"), ("", None)])
def test_the_command_prints_significant_differences_in_bold_and_in_colors(tone, codes, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80, no_color=False)
    monkeypatch.setattr(terminal, "console", screen)
    monkeypatch.setattr(command, "console", screen)
    row = (parts.Cell("R"), parts.Cell("94.00"), parts.Cell("−0.50", tone))
    command._print("rows", parts.Sheet("Rows", ("network", "accuracy", "difference"), (row,)))
    (line,) = (line for line in screen.file.getvalue().splitlines() if "94.00" in line)
    assert re.findall(r"\x1b\[([\d;]+)m *−0.50", line) == ([] if codes is None else [codes])


def test_the_title_of_a_narrow_table_stands_on_one_line(tmp_path, monkeypatch):
    run = result(94.0, recipe="a-recipe-with-a-name-of-forty-characters")
    run.save(tmp_path / "runs" / "result.json")
    monkeypatch.setattr(console, "_width", 52)
    monkeypatch.setattr(page, "write", lambda results, folder: folder / results[0].recipe)  # no figures
    ran = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    assert f"{run.recipe}: networks\n" in ran.stdout


def test_runs_that_are_not_finished_are_named(tmp_path):
    result(94.0).save(tmp_path / "runs" / "done" / "result.json")
    for name in ("done", "diverged", "published"):
        (tmp_path / "runs" / name).mkdir(exist_ok=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    for name in ("done", "diverged"):  # not the folder of `algebranets publish`
        (tmp_path / "runs" / name / "environment.json").write_text("{}")
    ran = report(tmp_path / "runs", "--out", tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    assert f"Left out, because it is not finished: {tmp_path / 'runs' / 'diverged'}" in ran.stdout
    assert ran.stdout.count("Left out") == 1


def test_mistakes_are_explained(tmp_path):
    (tmp_path / "empty").mkdir()
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"accuracy": 3}\n')
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(asdict(result(94.0))) + "\n{")
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(b"\xff\xfe\n")
    wrong = [
        {"value": None}, {"width": "1"}, {"width": 0}, {"width": 10**400}, {"changes": None}, {"nonzero": "all"},
        {"curve": [3]}, {"curve": [{"accuracy": 3}]}, {"curve": [{"step": 1, "seconds": True}]}, {"parameters": 0},
        {"experiment": {"model": 5}}, {"experiment": {"pruning": {"sparsity": "half"}}}, {"seconds": float("inf")},
        {"experiment": {"data": {"length": None}}}, {"experiment": {"model": {"norm": []}}}, {"seed": 1.5},
    ]  # fmt: skip
    for number, change in enumerate(wrong):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({**asdict(result(94.0)), **change}) + "\n")
    for path, message in (
        (odd, "line 1, is no JSON"),
        *((tmp_path / f"{number}.jsonl", f"algebranets: {next(iter(change))}") for number, change in enumerate(wrong)),
        (tmp_path / "missing", "does not exist; give run folders"),
        (tmp_path / "empty", "no finished run was found"),
        (foreign, "is no result of algebranets"),
        (broken, "line 2, is no JSON"),
    ):
        ran = report(path, "--out", tmp_path / "out")
        assert ran.exit_code == 2
        assert message in message_in_box(ran.stderr)
    assert not (tmp_path / "out").exists()


# The browser ----------------------------------------------------------------------------------------------------------

CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (e) => {
    if (!e) return [255, 255, 255];
    const [r, g, b, alpha = 1] = parse(getComputedStyle(e).backgroundColor);
    if (alpha === 1) return [r, g, b];
    const under = behind(e.parentElement);
    return [r, g, b].map((c, i) => alpha * c + (1 - alpha) * under[i]);
  };
  const found = {};
  for (const e of document.querySelectorAll("h1, h2, h3, p, li, dt, dd, th, td, figcaption, summary, a, code, text")) {
    const style = getComputedStyle(e);
    const ink = parse(e.tagName === "text" ? style.fill : style.color);
    const [low, high] = [light(ink), light(behind(e))].sort((a, b) => a - b);
    const name = e.tagName + "." + e.className;
    found[name] = Math.min(found[name] ?? 21, (high + 0.05) / (low + 0.05));
  }
  return found;
}"""
#: Whether the columns of a table can be seen: the metric before it is scrolled, and the first column also afterwards.
COLUMNS = """(box) => {
  const edges = (cell) => cell.getBoundingClientRect();
  const [first, second] = box.querySelector("tbody tr").cells, frame = edges(box);
  const metric = edges(second).right <= frame.right && edges(second).left >= edges(first).right - 1;
  box.scrollLeft = box.scrollWidth;
  first.scrollIntoView({block: "center"});
  const {left, top} = edges(first), shown = document.elementFromPoint(left + 5, top + 5);
  return {metric, frozen: Math.abs(left - frame.left) <= 2 && shown === first, scrolled: box.scrollLeft};
}"""
PAGES = ("cifar10/report.html", "cifar10-pruned/report.html", "gru/report.html", "index.html")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium on the PATH")
    quiet = ["background-networking", "component-update", "sync", "gpu"]
    arguments = ["--no-sandbox", "--headless", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


@pytest.fixture
def open_page(written, browser):
    contexts = []

    def visit(name, width, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        opened, said, requests = context.new_page(), [], []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda request: requests.append(request.url))
        address = (written / name).as_uri()
        opened.goto(address)
        assert said == []
        assert [url for url in requests if not url.startswith("data:")] == [address]
        return opened

    yield visit
    for context in contexts:
        context.close()


def fits(opened):
    return opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_well_on_desk_and_phone_by_day_and_night(width, scheme, open_page):
    for name in PAGES if (width, scheme) == (390, "dark") else PAGES[:1]:
        opened = open_page(name, width, scheme)
        opened.evaluate("document.querySelectorAll('details').forEach((e) => e.open = true)")
        assert fits(opened)
        ink, paper = (light_of(opened, "body", part) for part in ("color", "backgroundColor"))
        assert (ink < paper) == (scheme == "light")
        assert {name: ratio for name, ratio in opened.evaluate(CONTRASTS).items() if ratio < 4.5} == {}
        boxes = [svg.bounding_box() for svg in opened.locator("svg").all()]
        assert all(box["width"] > 250 and box["height"] > 150 for box in boxes)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        assert opened.locator("svg[role=img][aria-label]").count() == len(boxes)
        headings = opened.locator("h1, h2, h3")
        assert headings.count() > (2 if name == "index.html" else 6)
        assert all(heading.is_visible() for heading in headings.all())


def light_of(opened, selector, part):
    color = opened.locator(selector).evaluate(f"(e) => getComputedStyle(e).{part}")
    return luminance("#" + "".join(f"{int(number):02x}" for number in re.findall(r"\d+", color)[:3]))


@pytest.mark.parametrize("name", PAGES[:3])
def test_a_phone_shows_the_metric_at_once_and_the_first_column_always(name, open_page):
    opened = open_page(name, 390)
    found = [table.evaluate(COLUMNS) for table in opened.locator("main > .scroll").all()]
    assert len(found) == {"cifar10": 2, "cifar10-pruned": 4, "gru": 1}[name.split("/")[0]]
    assert all(table["metric"] and table["frozen"] for table in found)
    assert any(table["scrolled"] > 100 for table in found)


def test_a_shadow_at_the_edge_says_that_a_table_can_be_scrolled(open_page):
    def edge(table):
        """Return the brightness of the table's right edge, above its headings, and of its inside."""
        picture = Image.open(io.BytesIO(table.screenshot())).convert("L")
        return picture.getpixel((picture.width - 6, 4)), picture.getpixel((picture.width // 2, 4))

    for scheme in ("light", "dark"):
        table = open_page(PAGES[0], 390, scheme).locator("main > .scroll").first
        edge_, inside = edge(table)
        assert edge_ < 0.95 * inside
        table.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
        edge_, inside = edge(table)
        assert abs(edge_ - inside) <= 2
    wide = open_page(PAGES[0], 1280).locator("main > .scroll")
    assert wide.evaluate_all("(found) => found.every((e) => e.scrollWidth <= e.clientWidth)")
    edge_, inside = edge(wide.first)
    assert abs(edge_ - inside) <= 2


def test_print_is_light_loses_nothing_and_fits_the_paper(open_page):
    for name in PAGES[:2]:
        opened = open_page(name, 703, "dark")  # the width of A4 between our margins
        opened.emulate_media(media="print", color_scheme="dark")
        assert fits(opened)
        assert opened.locator(".scroll").evaluate_all("(f) => f.every((e) => e.scrollWidth <= e.clientWidth + 1)")
        assert light_of(opened, "body", "color") < light_of(opened, "body", "backgroundColor") == 1
        hidden = "(f) => f.filter((e) => !e.checkVisibility({contentVisibilityAuto: true})).length"
        assert opened.locator("td, dd, pre, li, figcaption, .note, svg").evaluate_all(hidden) == 0
        assert {part: ratio for part, ratio in opened.evaluate(CONTRASTS).items() if ratio < 4.5} == {}
