"""The benchmark measures what it says, and nothing that is wrong."""

import pytest
import torch
from torch import nn

from algebranets import bench
from algebranets import nn as ann


def rows(**options):
    small = {"width": 24, "batch": 64, "rounds": 3, **options}
    return list(bench.layers(**small))


def test_each_op_and_algebra_gives_its_rows():
    found = rows(names=["M2R", "CROSS"])
    assert [(row.op, row.algebra) for row in found] == [
        ("linear", "M2R"), ("linear", "CROSS"), *[("conv2d", "M2R")] * 4, *[("conv2d", "CROSS")] * 4,
        ("gru", "M2R"), ("gru", "CROSS"),
    ]  # fmt: skip
    linear = found[0]
    assert linear.parameters == pytest.approx((24 * 24 / 4 + 24) / (24 * 24 + 24))
    assert linear.spread[0] <= linear.speedup <= linear.spread[1]
    assert linear.dtype == "float32"


def test_zeros_compares_the_dense_product_with_the_skipping_one():
    found = list(bench.zeros(widths=[24], batch=64, rounds=2))
    assert [(row.op, row.algebra) for row in found[:5]] == [("linear", "DUAL"), *[("conv2d", "DUAL")] * 4]
    assert {row.algebra for row in found} == {"DUAL", "CROSS", "DUAL*H"}
    assert all(row.parameters == 1 for row in found)


def test_a_layer_that_disagrees_with_its_reference_is_not_timed(monkeypatch):
    class Wrong(ann.Linear):
        def forward(self, x):
            return super().forward(x) * (1.01 if self.lowering == "auto" else 1)

    monkeypatch.setattr(ann, "Linear", Wrong)
    with pytest.raises(RuntimeError, match=r"linear over M2R at .* disagrees with its reference by .*: not timed"):
        rows(names=["M2R"], ops=["linear"])


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
    assert bench._disagreement(right, right, x) == 0
    assert bench._disagreement(wrong, right, x) == pytest.approx(1)


def test_saving_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    file.write_text("old")
    found = rows(names=["C"], ops=["linear"])
    monkeypatch.setattr(type(file), "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        bench.save(found, file)
    assert file.read_text() == "old"
