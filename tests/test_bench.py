"""Benchmarks: what they measure, what they refuse to time, and the rows and the figure that they write."""

import json
import re
import sys
import tempfile
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from algebranets import nn as ann
from algebranets.conversion.peers import converted
from algebranets.lab import bench
from algebranets.lab.bench import case, chain, decode, depthwise, error, figure, layers, peers, sparse, timing, zeros
from algebranets.lab.cli import app
from algebranets.lab.cli.bench.options import LOWERINGS
from algebranets.product import Lowering
from boxes import message_in_box, without_spaces

QUICK = bench.Run(rounds=3)
TEMPORARY = tempfile.gettempdir()
ROW = {
    "op": "linear", "shape": "8 x 32", "algebra": "M2R", "dtype": "float32", "device": "a device", "lowering": "auto",
    "speedup": 1.5, "spread": [1.4, 1.6], "parameters": 0.25, "error": 0.0, "torch": "2", "commit": "0",
}  # fmt: skip


def limits_but_of_bfloat16(device, dtype):
    return timing.Limits(1e10, 1e10) if dtype == torch.bfloat16 else timing.limits(device, dtype)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Use small images, one thread and made-up limits of bf16, since these tests do not check speed.

    Measuring the limits takes a minute on a CPU without bf16.
    """
    monkeypatch.setattr(bench.rows, "limits", limits_but_of_bfloat16)
    monkeypatch.setattr(layers, "IMAGES", ((24, 4), (48, 2)))
    monkeypatch.setattr(peers, "IMAGES", (16, 4))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(*arguments):
    result = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "100"}).invoke(app, ["bench", *arguments])
    lines = [line for line in result.output.splitlines() if TEMPORARY not in line]
    assert max(map(len, lines), default=0) <= 100  # except paths, which are never wrapped
    return result


def command(tmp_path, name, *arguments):
    """Run a command, check that it prints all rows that it saves, and return the rows."""
    file = tmp_path / "rows.jsonl"
    result = run(name, *arguments, "--save", str(file))
    assert result.exit_code == 0, result.output
    written = [json.loads(line) for line in file.read_text().splitlines()]
    for row in written:
        assert row["algebra"] in result.stdout
        if "speedup" in row:
            assert f"{row['speedup']:.2f}x" in result.stdout
            assert row["spread"][0] <= row["speedup"] <= row["spread"][1]
            assert row["milliseconds"] > 0
            assert not row["captured"]
    assert "…" not in result.stdout
    return written


# What is measured -----------------------------------------------------------------------------------------------------


def test_each_op_and_algebra_gives_its_rows():
    found = list(layers.measure(QUICK, names=["M2R", "CROSS"], widths=[24], batch=64))
    assert [(row.op, row.algebra) for row in found] == [
        ("linear", "M2R"), ("linear", "CROSS"), *[("conv2d", "M2R")] * 2, *[("conv2d", "CROSS")] * 2,
        ("gru", "M2R"), ("gru", "CROSS"),
    ]  # fmt: skip
    linear = found[0]
    assert linear.parameters == pytest.approx((24 * 24 / 4 + 24) / (24 * 24 + 24))
    assert linear.multiply_adds == 3 * 64 * 24 * 24 // 2  # M2R: 8 multiplies instead of 16
    assert linear.limit == 2
    assert linear.bytes == 4 * (3 * 64 * 24 + 2 * 64 * 24 + 3 * (24 * 24 // 4 + 24))
    assert min(linear.bandwidth, linear.compute, linear.speedup_same_parameters, linear.speedup_over_loop) > 0


def test_widths_hold_whole_tuples_and_suit_the_real_layer():
    for algebra in ("M3R", "CROSS", "M2R"):
        width = case.fit_width(4096, bench.layers.algebras.get(algebra))
        assert width % bench.layers.algebras.get(algebra).dim == 0
        assert width % 8 == 0


def test_lowerings_are_compared_in_one_run(tmp_path):
    options = ["--op", "linear", "--algebra", "M2R", "--width", "32", "--batch", "16", "--rounds", "1"]
    found = command(tmp_path, "layers", *options, "--lowering", "auto", "--lowering", "blocks")
    assert [row["lowering"] for row in found] == ["auto", "blocks"]


def test_half_precision_is_autocast_with_half_precision_inputs():
    half = bench.Run(dtype=torch.bfloat16, rounds=1)
    seen = []

    class Seen(ann.Linear):
        def forward(self, x):
            y = super().forward(x)
            seen.append((x.dtype, self.weight.dtype, y.dtype))
            return y

    step = case.training_step(Seen(8, 8, algebra="C"), torch.randn(4, 8, dtype=torch.bfloat16), half)
    step()
    assert set(seen) == {(torch.bfloat16, torch.float32, torch.bfloat16)}
    (row,) = layers.measure(half, ["M2R"], ["linear"], [32], 16)
    assert 1e-4 < row.error < 4 * torch.finfo(torch.bfloat16).eps


def test_zeros_compares_the_dense_product_with_the_skipping_one():
    found = list(zeros.measure(bench.Run(rounds=2), widths=[24], batch=64))
    assert [(row.op, row.algebra) for row in found[:3]] == [("linear", "DUAL"), *[("conv2d", "DUAL")] * 2]
    assert {row.algebra for row in found} == {"DUAL", "CROSS", "DUAL*H"}
    assert all(row.parameters == 1 and row.against == "dense" for row in found)


def test_decoding_reads_every_weight_of_the_chain_once(tmp_path):
    options = ["--width", "32", "--batch", "1", "--batch", "3", "--algebra", "M2R", "--rounds", "2"]
    found = command(tmp_path, "decode", *options)
    assert [(row["shape"], row["chain"]) for row in found] == [("1 x 32", 4), ("3 x 32", 4)]
    assert found[0]["bytes"] == 2 * (4 * (32 * 32 // 4 + 32) + 5 * 32)
    real = 2 * (4 * (32 * 32 + 32) + 5 * 32)
    assert found[0]["limit"] == pytest.approx(real / found[0]["bytes"])
    assert found[0]["dtype"] == "bfloat16"


def test_quantized_layers_read_one_byte_a_number_and_are_compared_with_dense_ones(tmp_path):
    options = ["--weights", "int8", "--width", "32", "--batch", "1", "--algebra", "M2R", "--rounds", "2"]
    (row,) = command(tmp_path, "decode", *options)
    assert (row["op"], row["shape"], row["parameters"]) == ("decode int8", "1 x 32", (256 + 32) / (1024 + 32))
    assert row["bytes"] == 4 * (256 + 4 * 8 + 2 * 32) + 2 * 5 * 32
    assert min(row["speedup"], row["speedup_over_dense"]) > 0
    assert row["error"] < 4 * torch.finfo(torch.bfloat16).eps


def test_sparse_layers_are_compared_with_dense_real_and_number_by_number_ones(tmp_path):
    options = [
        "--width",
        "64",
        "--batch",
        "1",
        "--batch",
        "70",
        "--sparsity",
        "0.75",
        "--algebra",
        "H",
        "--rounds",
        "2",
    ]
    found = command(tmp_path, "sparse", *options)
    assert [(row["shape"], row["sparsity"]) for row in found] == [("1 x 64, 75 %", 0.75), ("70 x 64, 75 %", 0.75)]
    for row in found:
        assert min(row["speedup"], row["speedup_over_dense"], row["speedup_over_csr"]) > 0
    tuples = found[0]["parameters"] * 64**2 / 4
    assert tuples == pytest.approx(16**2 / 4, abs=20)
    assert found[0]["bytes"] == tuples * (4 * 4 + 2) + 17 * 4 + 2 * 64 * 4
    assert found[1]["multiply_adds"] == 70 * tuples * 16
    assert found[0]["limit"] == pytest.approx((64 * 64 + 2 * 64) * 4 / found[0]["bytes"])


def test_the_numbers_of_the_real_sparse_matrix_are_as_many():
    matrix = sparse._csr(bench.Run(), 20, 57)
    assert matrix.values().numel() == 57
    assert matrix.crow_indices().diff().tolist() == [3] * 17 + [2] * 3
    assert (matrix.to_dense() != 0).sum() == 57


def test_what_cannot_be_captured_is_timed_after_what_can(monkeypatch):
    """The step that cannot be captured is the last one, CSR."""
    asked = []

    def race(_, steps):
        asked.append(len(steps))
        return [[float(len(steps))] for _ in steps], len(steps) == 2

    monkeypatch.setattr(sparse, "race", race)
    times, captured = sparse._race(bench.Run("cuda"), [lambda: None] * 3)
    assert (asked, times, captured) == ([3, 2, 1], [[2.0], [2.0], [1.0]], True)


def test_a_chain_on_a_gpu_outgrows_its_cache(monkeypatch):
    class Properties:
        L2_cache_size = 1000

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    number = chain.chain_length(bench.Run("cuda"), 440)
    assert number * 440 >= 4 * 1000 > (number - 1) * 440


def test_depthwise_layers_are_those_of_mobilenet(tmp_path, monkeypatch):
    assert depthwise.sizes() == [
        (32, 112, 1), (64, 112, 2), (128, 56, 1), (128, 56, 2), (256, 28, 1), (256, 28, 2), (512, 14, 1), (512, 14, 2),
        (1024, 7, 1),
    ]  # fmt: skip
    monkeypatch.setattr(depthwise, "BLOCKS", depthwise.BLOCKS[:3])
    found = command(tmp_path, "depthwise", "--algebra", "H", "--image-size", "32", "--batch", "1", "--rounds", "1")
    assert [row["shape"] for row in found] == ["1 x 32 x 16^2", "1 x 64 x 16^2 / 2", "1 x 128 x 8^2"]
    assert all(row["parameters"] == 1 and row["speedup_same_parameters"] is None for row in found)


def test_rounding_grows_where_sums_are_rounded(tmp_path):
    found = command(tmp_path, "error", "--algebra", "H", "--width", "32", "--batch", "16")
    assert [row["dtype"] for row in found] == ["bfloat16", "float16", "float32"]
    assert [row["shape"] for row in found] == ["16 x 32"] * 3
    for row in found:
        eps = torch.finfo(getattr(torch, row["dtype"])).eps
        assert set(row["errors"]) == set(error.LOWERINGS)
        assert all(0 < value < 20 * eps for value in row["errors"].values())


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("cifar_resnet", ["--size", "8", "--set", "num_blocks=1", "--set", "width=0.25", "--dtype", "bfloat16"]),
        ("gru_lm", ["--size", "4", "--set", "hidden_size=16"]),
        *(
            (name, ["--size", "6", *(f"--set={option}" for option in (
                "num_layers=1", "d_model=32", "num_heads=2", "ff_size=32", "window=6",
            ))])
            for name in ("transformer_xl", "generation")
        ),
    ],
)  # fmt: skip
def test_models_are_timed_over_r_and_over_an_algebra(tmp_path, model, options):
    fixed = ["--model", model, "--algebra", "M2R", "--batch", "2", "--no-compile", "--rounds", "1"]
    (row,) = command(tmp_path, "models", *fixed, *options)
    assert row["op"].startswith(model)
    assert row["parameters"] < 1


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_layer_that_disagrees_with_its_reference_is_not_timed(monkeypatch):
    class Wrong(ann.Linear):
        def forward(self, x):
            return super().forward(x) * (1.1 if self.lowering == "auto" else 1)

    monkeypatch.setattr(ann, "Linear", Wrong)
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(RuntimeError, match=r"linear over M2R at .* disagrees with its reference by .*: not timed"):
            list(layers.measure(bench.Run(dtype=dtype), ["M2R"], ["linear"], [24], 8))
        with pytest.raises(RuntimeError, match="decoding over M2R"):
            list(decode.measure(bench.Run(dtype=dtype), ["M2R"], [24], [1]))


def test_a_gradient_that_disagrees_counts_as_well():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    class Wrong(nn.Linear):
        def forward(self, x):
            return super().forward(Twice.apply(x))

    right = nn.Linear(4, 4)
    wrong = Wrong(4, 4)
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(3, 4)
    assert case.disagreement(right, right, x, QUICK) == 0
    assert case.disagreement(wrong, right, x, QUICK) == pytest.approx(1)


def test_what_is_not_a_number_is_refused():
    with pytest.raises(RuntimeError, match="not timed"):
        case.check_error(float("nan"), QUICK, "a layer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["layers", "--lowering", "reference"], "--lowering must be one of auto, blocks"),
        (["models", "--model", "vgg"], "--model must be one of resnet50, mobilenet_v1"),
        (["models", "--model", "cifar_resnet", "--set", "depth=3"], "cifar_resnet has no option 'depth'"),
        (["models", "--model", "transformer_xl", "--set", "window=x"], "window must be a whole number; got 'x'"),
        (
            ["models", "--model", "transformer_xl", "--set", "num_layers=x"],
            "num_layers must be a whole number; got 'x'",
        ),
        (["models", "--model", "transformer_xl", "--set", "window=-1"], "window must be at least 1; got -1"),
        (["models", "--model", "generation", "--set", "algebra=R"], "algebra cannot be set here"),
        (["models", "--model", "cifar_resnet", "--set", "lowering=blocks"], "lowering cannot be set here"),
        (["models", "--model", "gru_lm", "--set", "hidden_size=x"], "hidden_size must be a whole number; got 'x'"),
        (["models", "--model", "gru_lm", "--set", "width=2"], "gru_lm has no option 'width'"),
        (["layers", "--batch", "9" * 30], "--batch"),
        (["peers", "--op", "gru"], "--op must be one of linear, conv2d"),
        (["figure", "missing.jsonl", "--out", "x.svg"], "missing.jsonl"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in message_in_box(result.stderr)


def test_without_peers_the_command_says_how_to_install_them(monkeypatch):
    monkeypatch.setattr(peers, "_importable", lambda _: False)
    result = run("peers")
    assert result.exit_code == 2
    assert "pip install 'algebranets[peers]'" in message_in_box(result.stderr)


def test_all_lowerings_except_the_reference_can_be_timed():
    """They are listed by hand, because the help of commands does not import torch."""
    assert {*LOWERINGS, "reference"} == set(get_args(Lowering))


def test_a_peer_is_timed_on_an_input_of_its_own(monkeypatch):
    class Complex(nn.Module):
        def __init__(self, inp, out):
            super().__init__()
            self.linear = nn.Linear(inp, out, dtype=torch.cfloat)

        def forward(self, x):
            return self.linear(x)

    monkeypatch.setattr(peers, "_importable", lambda package: package == "complextorch")
    monkeypatch.setattr(peers.Peer, "layer_type", lambda _: Complex)
    monkeypatch.setattr(peers, "PEERS", (replace(peers.PEERS[0], twin=lambda theirs: converted(theirs.linear)),))
    result = run("peers", "--op", "linear", "--width", "16", "--batch", "8", "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert "complextorch Linear" in result.stdout
    assert re.search(r"left out.*cliffordlayers, speechbrain, clifra", " ".join(result.stdout.split()))
    monkeypatch.setattr(Complex, "forward", lambda self, x: self.linear(x)[: 1 if len(x) == 8 else None])
    with pytest.raises(RuntimeError, match=r"complextorch Linear gave \(1, 8\)"):
        list(peers.measure(QUICK, ("linear",), 16, 8))
    monkeypatch.setattr(Complex, "forward", lambda self, x: self.linear(x.conj()))
    with pytest.raises(RuntimeError, match="linear of complextorch Linear over C disagrees"):
        list(peers.measure(QUICK, ("linear",), 16, 8))


def test_a_peer_over_a_clifford_algebra_is_its_product(monkeypatch):
    """clifra has no layer with multivectors as weights."""

    def geometric_product(over, left, right, pairwise):
        assert pairwise
        y = torch.zeros(len(left), len(right), over.dim)
        for i, j, k, c in over.terms:
            y[:, :, k] += c * torch.outer(left[:, i], right[:, j])
        return y

    made = SimpleNamespace(make_algebra=peers.algebras.clifford)
    monkeypatch.setitem(sys.modules, "clifra", made)
    monkeypatch.setitem(sys.modules, "clifra.functional", SimpleNamespace(geometric_product=geometric_product))
    monkeypatch.setattr(peers, "_importable", lambda package: package == "clifra")
    found = list(peers.measure(QUICK, width=64, batch=8))
    assert [(row.op, row.algebra, row.against, row.parameters) for row in found] == [
        ("linear", f"clifford({signature},0)", "clifra geometric_product", 1)
        for signature in ("2,0", "3,0", "1,3", "4,1")
    ]
    made.make_algebra = lambda p, q: peers.algebras.clifford(q, p)
    with pytest.raises(RuntimeError, match=r"clifra geometric_product over clifford\(2,0,0\) disagrees"):
        list(peers.measure(QUICK, width=64, batch=8))


# How times are taken --------------------------------------------------------------------------------------------------


def test_steps_are_timed_in_turn():
    order = []
    times, captured = timing.race(bench.Run(rounds=2), [lambda: order.append("a"), lambda: order.append("b")])
    assert order[-4:] == ["a", "b", "a", "b"]
    assert [len(seconds) for seconds in times] == [2, 2]
    assert not captured


def test_what_cannot_be_captured_is_timed_without(monkeypatch):
    def fail(_step):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(timing, "_recorded", fail)
    monkeypatch.setattr(timing, "_timed_by_events", lambda step, _: step() or 1.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    _, captured = timing.race(bench.Run("cuda", rounds=1), [lambda: None])
    assert not captured


# Rows and their figure ------------------------------------------------------------------------------------------------


def test_saving_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    file.write_text("old")
    found = list(layers.measure(QUICK, ["C"], ["linear"], [24], 8))
    monkeypatch.setattr(type(file), "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        bench.save(found, file)
    assert file.read_text() == "old"


def test_rows_come_back_and_old_ones_may_lack_fields(tmp_path):
    file = tmp_path / "rows.jsonl"
    found = list(layers.measure(QUICK, ["C"], ["linear"], [24], 8))
    bench.save(found, file)
    (back,) = bench.load(file)
    assert (back.speedup, back.limit) == (found[0].speedup, found[0].limit)
    old = json.loads(file.read_text())
    for name in ("limit", "captured", "against", "bandwidth"):
        del old[name]
    file.write_text(json.dumps({**old, "of another version": 1}) + "\n")
    (row,) = bench.load(file)
    assert (row.speedup, row.limit, row.against) == (found[0].speedup, None, "torch.nn")
    file.write_text("{}\nno JSON\n")
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2 is no JSON"):
        bench.load(file)


@pytest.mark.parametrize(
    "line",
    [
        "5", "null", "[]", "[" * 100_000, '{"speedup": 1}', '{"speedup": "fast"}',
        *(json.dumps({**ROW, **change}) for change in (
            {"op": 3}, {"speedup": None}, {"speedup": float("nan")}, {"limit": 10**400}, {"spread": [1.0]},
            {"captured": "no"}, {"rounds": []},
        )),
    ],
    ids=lambda line: line[-40:],
)  # fmt: skip
def test_what_is_no_row_is_refused_with_its_line(tmp_path, line):
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(ROW)}\n{line}\n")
    result = run("figure", str(file), "--out", str(tmp_path / "speed.svg"))
    assert result.exit_code == 2
    message = without_spaces(message_in_box(result.stderr))
    assert without_spaces(f"{file}, line 2") in message
    assert without_spaces("It must have rows that algebranets bench --save wrote.") in message
    file.write_text(json.dumps(ROW))
    assert len(bench.load(file)) == 1


def test_a_model_of_few_classes_or_characters_is_timed(tmp_path):
    options = ["--algebra", "M2R", "--batch", "2", "--no-compile", "--rounds", "1"]
    images = ["--set", "num_classes=4", "--size", "8", "--set", "num_blocks=1", "--set", "width=0.25"]
    assert len(command(tmp_path, "models", "--model", "cifar_resnet", *options, *images)) == 1
    small = {"vocab_size": 4, "num_layers": 1, "d_model": 8, "num_heads": 2, "ff_size": 8, "window": 2}
    texts = ["--size", "2", *(f"--set={name}={value}" for name, value in small.items())]
    assert len(command(tmp_path, "models", "--model", "transformer_xl", *options, *texts)) == 1


def test_a_sparse_layer_without_a_tuple_is_timed(tmp_path):
    (row,) = command(
        tmp_path, "sparse", "--width", "8", "--batch", "1", "--sparsity", "0.999", "--algebra", "H", "--rounds", "1"
    )
    assert row["parameters"] == 0


def test_the_figure_says_every_number(tmp_path):
    row = bench.Row(
        "linear", "8 x 32", "M2R", "float32", "a device", "auto", 1.5, (1.4, 1.6), 0.25, 0, "2", "0", limit=2.0
    )
    other = bench.Row("gru", "4 x 32", "mine", "float32", "a device", "auto", 0.7, (0.6, 0.8), 0.25, 0, "2", "0")
    peer = replace(other, algebra="C", against="a peer")
    rows, out = tmp_path / "rows.jsonl", tmp_path / "speed.svg"
    bench.save([other, peer, row, replace(row, shape="8 x 64")], rows)
    result = run("figure", str(rows), "--out", str(out))
    assert result.exit_code == 0, result.output
    text = out.read_text()
    assert "gru 4 x 32 over mine 0.70; gru 4 x 32 over C 0.70; linear 8 x 32 over M2R 1.50; linear 8 x 64" in text
    words = [
        "8 x 32", "8 x 64", "linear: torch.nn's time over ours (float32, a device)",
        "gru, 4 x 32", "torch.nn's time over ours (float32, a device)",
        "a peer, 4 x 32", "another library's time over ours (float32, a device)",
    ]  # fmt: skip
    assert [found for found in re.findall(r"<text[^>]*>([^<]*)</text>", text) if found in words] == words
    assert run("figure", str(rows), "--out", str(out), "--op", "conv2d").exit_code == 2
    with pytest.raises(ValueError, match="there must be rows"):
        figure.draw([])
