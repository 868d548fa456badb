"""Embeddings over an algebra: over R they are torch's, and `from_pretrained` takes an algebra."""

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.algebra import CATALOGUE

F64 = torch.float64
INDEX = torch.tensor([1, 2, 6, 0, 2, 5])
OFFSETS = torch.tensor([0, 3, 3])  # the second bag is empty


OPTIONS = [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"max_norm": 1.0, "norm_type": 1.0}]


@pytest.mark.parametrize(
    "options",
    [{"mode": mode, **more} for mode in ("sum", "mean", "max") for more in OPTIONS] + [{"scale_grad_by_freq": True}],
    ids=str,
)
def test_over_r_an_embedding_bag_is_torchs(options):
    theirs = nn.EmbeddingBag(7, 4, dtype=F64, **options)
    ours = an.nn.EmbeddingBag(7, 4, dtype=F64, **options, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    for args in ((INDEX, OFFSETS), (INDEX.reshape(2, 3),)):
        results = []
        for layer in (ours, theirs):
            y = layer(*args)
            (grad,) = torch.autograd.grad((y**2).sum(), layer.weight)
            results.append((y, grad))
        torch.testing.assert_close(*results)


def test_over_r_weighted_bags_are_torchs():
    weights = torch.randn(6, dtype=F64)
    theirs = nn.EmbeddingBag(7, 4, mode="sum", include_last_offset=True, sparse=True, dtype=F64)
    ours = an.nn.EmbeddingBag(7, 4, None, 2.0, False, "sum", True, None, True, dtype=F64, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    offsets = torch.tensor([0, 2, 6])
    results = [layer(INDEX, offsets, per_sample_weights=weights) for layer in (ours, theirs)]
    torch.testing.assert_close(*results)
    results[0].sum().backward()
    assert ours.weight.grad.is_sparse


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
def test_a_bag_of_tuples_is_their_sum(algebra):
    bags = an.nn.EmbeddingBag(7, 3 * algebra.dim, mode="sum", algebra=algebra)
    vectors = an.tuples(bags.weight[INDEX], algebra)
    expected = torch.stack([vectors[:3].sum(0), torch.zeros_like(vectors[0]), vectors[3:].sum(0)])
    torch.testing.assert_close(an.tuples(bags(INDEX, OFFSETS), algebra), expected)
    assert repr(bags) == f"EmbeddingBag(7, {3 * algebra.dim}, mode='sum', algebra={algebra.name})"


def test_an_embedding_bag_compiles_to_one_graph():
    torch._dynamo.reset()
    bags = an.nn.EmbeddingBag(7, 8, algebra=H)
    expected = bags(INDEX, OFFSETS)
    torch.testing.assert_close(torch.compile(bags, fullgraph=True, backend="aot_eager")(INDEX, OFFSETS), expected)


def test_an_account_counts_the_vectors_that_are_read():
    bags = an.nn.EmbeddingBag(7, 8, mode="sum", algebra=H)
    cost = an.account(bags, INDEX, OFFSETS)
    assert (cost.bytes, cost.multiplies) == (6 * 8 * 4, 0)
    assert not cost.unknown
    assert an.account(bags, INDEX, OFFSETS, torch.randn(6)).multiplies == 6 * 8


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_pretrained_vectors_become_the_weight(name):
    layer, table = getattr(an.nn, name), torch.randn(7, 8)
    made = layer.from_pretrained(table, freeze=False, padding_idx=1, algebra=M2R)
    assert (type(made), made.algebra, made.padding_idx) == (layer, M2R, 1)
    assert torch.equal(made.weight, table)
    assert made.weight.requires_grad
    assert not layer.from_pretrained(table, algebra="C").weight.requires_grad
    with pytest.raises(ValueError, match=f"{name} needs an algebra"):
        layer.from_pretrained(table)
    with pytest.raises(ValueError, match="embedding_dim is 7, which does not hold whole H tuples"):
        layer.from_pretrained(table[:, :7], algebra=H)


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_pretrained_vectors_get_the_bound_algebra(name):
    made = getattr(an.over("H"), name).from_pretrained(torch.randn(7, 8))
    assert (type(made), made.algebra) == (getattr(an.nn, name), H)
    assert getattr(an.over("H"), name).from_pretrained(torch.randn(7, 8), algebra="C").algebra is C


def test_the_vectors_of_a_bag_record_their_algebra():
    saved = an.nn.EmbeddingBag(7, 8, algebra=H).state_dict()
    assert [*saved] == ["weight", "algebra_id"]
    with pytest.raises(RuntimeError, match=r"EmbeddingBag is over M2R, but the state dict holds weights over H"):
        an.nn.EmbeddingBag(7, 8, algebra=M2R).load_state_dict(saved)
    assert [*an.nn.EmbeddingBag(7, 8, algebra=R).state_dict()] == ["weight"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_dim": 6}, "embedding_dim is 6, which does not hold whole H tuples"),
        ({"mode": "median"}, "mode must be one of sum, mean, max; got 'median'"),
        ({"padding_idx": 7}, "padding_idx must be the index of one of num_embeddings=7 vectors"),
        ({"max_norm": -1.0}, "max_norm must be a number from 0 on"),
    ],
    ids=str,
)
def test_unsound_arguments_of_a_bag_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        an.nn.EmbeddingBag(**{"num_embeddings": 7, "embedding_dim": 8, **options}, algebra=H)
