"""The paper's tables: rows that must agree with our counts, and rows that must have a note."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import algebranets
from algebranets import models
from algebranets.lab.cli import app
from algebranets.lab.report import paper
from algebranets.lab.report.paper import printed
from algebranets.lab.report.paper.operations import count_operations


@cache
def tables():
    """Return the tables by name, made from recorded counts. tests/test_recorded.py compares these with `account`'s."""
    return {table.title.partition(":")[0]: table for table in paper.tables()}


def entries(table, quantity):
    return {e.row: e for e in tables()[table].entries if e.quantity == quantity}


def test_every_table_of_the_paper_is_there():
    assert list(tables()) == ["Table 1", "Figures 1 and 2", *(f"Table {n}" for n in (2, 3, 4, 5, 6))]


def test_table_1_ten_of_ten():
    rows = {}
    for entry in tables()["Table 1"].entries:
        rows.setdefault(entry.row, []).append(entry.agrees)
    assert len(rows) == 10
    assert all(all(agrees) for agrees in rows.values())


@pytest.mark.parametrize(("quantity", "odd"), [("M parameters", "R 1536"), ("MFLOPs", "H 512")])
def test_the_gru_nine_of_ten_and_the_tenth_explained(quantity, odd):
    rows = entries("Table 3", quantity)
    assert len(rows) == 10
    assert [row for row, entry in rows.items() if not entry.agrees] == [odd]
    assert rows[odd].note


def test_transformer_xl():
    parameters = entries("Table 2", "M parameters")
    for row in ("R 24L", "R efficient 24L"):
        assert abs(parameters[row].difference) < 0.001
    assert f"{parameters['M2R efficient 42L'].computed:.1f}" == "30.6"
    assert parameters["M2R efficient 42L"].note
    assert parameters["R 18L"].note
    for window in (1536, 4608):
        for row, entry in entries("Table 2", f"MFLOPs, {window}").items():
            assert abs(entry.difference) < 0.006 if row.startswith("R") else entry.note
            everything = entries("Table 2", f"MFLOPs, {window}, all")[row]
            assert everything.computed > entry.computed


def test_resnet50_and_mobilenet_exactly():
    for quantity in ("M parameters", "M multiply-adds"):
        for row, entry in entries("Figures 1 and 2", quantity).items():
            assert entry.agrees or (" x" in row and abs(entry.difference) < 0.011), entry


def test_cifar_within_two_percent():
    rows = entries("Table 6", "M parameters")
    assert len(rows) == 6
    assert all(abs(entry.difference) < 0.02 for entry in rows.values())
    flops = entries("Table 6", "MFLOPs")
    assert flops["H batch"].computed == pytest.approx(2 * flops["M2R batch"].computed, rel=0.01)


def test_every_row_that_is_not_reproduced_has_a_note():
    for table in tables().values():
        for entry in table.entries:
            assert entry.agrees is not False or entry.note, entry
            assert entry.computed is not None or entry.note == paper.NOT_TRAINED


def test_the_likely_errata_are_named():
    text = " ".join(
        note for table in tables().values() for note in (*table.notes, *(e.note or "" for e in table.entries))
    )
    for erratum in (
        "27.8 for 26.8",
        "memory 1538",
        "at least 1:1 for all algebras",
        "18 layers at d = 1024",
        "48 layers",
    ):
        assert erratum in text


def test_agreement_is_to_the_printed_digits():
    assert paper.Entry("", "", "26.8", 26.75).agrees
    assert not paper.Entry("", "", "26.8", 26.74).agrees
    assert paper.Entry("", "", "", 26.74).agrees is None
    assert paper.Entry("", "", "1.30", None).agrees is None
    assert paper.Entry("", "", "2", 3.0).difference == pytest.approx(0.5)


def test_counts_are_written_by_hand_nowhere_else():
    """Only the file of published rows has parameter or FLOP counts of the paper's models."""
    figures = {e.printed for t in tables().values() for e in t.entries if e.quantity.startswith("M")}
    pattern = re.compile(r"(?<![\w.])(" + "|".join(re.escape(p) for p in figures if len(p) > 3) + r")(?![\w.])")
    root = Path(algebranets.__file__).parent
    for file in root.rglob("*.py"):
        if file != Path(printed.__file__):
            assert not pattern.search(file.read_text()), file


def test_the_paper_counts_operations_of_single_tokens_of_its_language_models_alone():
    with torch.device("meta"):
        transformer = models.create("transformer_xl", algebra="C", num_layers=1, d_model=64, num_heads=2, window=8)
        tokens, cache = transformer.example_inputs()
        assert count_operations(transformer, tokens, cache) > 0
        assert count_operations(transformer, tokens) is None
        gru = models.create("gru_lm", algebra="C", hidden_size=16)
        assert count_operations(gru, tokens.expand(2, 3)) == 6 * count_operations(gru, tokens)
    assert count_operations(nn.Linear(2, 2), torch.zeros(1, 2)) is None


def test_paper_prints_every_table():
    result = CliRunner().invoke(app, ["paper"])
    assert result.exit_code == 0, result.output
    for heading in ("Table 1", "Figures 1 and 2", "Table 2", "Table 3", "Table 4", "Table 5", "Table 6"):
        assert f"{heading}: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["ResNet-50", "R", "M", "parameters", "25.56", "25.56", "none"] in lines
    assert ["R", "1536", "M", "parameters", "27.8", "26.8", "-3.72", "%", "[2]"] in lines


def test_paper_prints_json():
    tables = json.loads(CliRunner().invoke(app, ["paper", "--json"]).stdout)
    assert tables[3]["entries"][0] == {
        "row": "R 1024", "quantity": "M parameters", "printed": "12.1", "computed": 12.077312, "note": None,
    }  # fmt: skip


def test_differences_prints_only_figures_that_differ_and_the_reason_of_each():
    result = CliRunner().invoke(app, ["paper", "--differences"])
    assert result.exit_code == 0, result.output
    assert "none" not in result.stdout
    assert paper.NOT_TRAINED not in result.stdout
    differing = [e for table in tables().values() for e in table.entries if e.agrees is False]
    text = " ".join(result.stdout.split())
    for entry in differing:
        assert f"{100 * entry.difference:+.2f} %" in text
        assert entry.note in text
    compared = [e for table in tables().values() for e in table.entries if e.agrees is not None]
    agreeing = len(compared) - len(differing)
    assert f"{agreeing} of {len(compared)} figures are the same" in text
    shown = json.loads(CliRunner().invoke(app, ["paper", "--differences", "--json"]).stdout)
    assert sum(len(table["entries"]) for table in shown) == len(differing)
