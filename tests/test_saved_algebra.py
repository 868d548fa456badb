"""State dicts record the algebra of every weight, and loading weights of another algebra is an error."""

import re
import warnings

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import nn as tnn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.nn.utils import parametrize

import algebranets as an
from algebranets import nn
from algebranets.algebra import M2R, Algebra, H, R, diagonal
from algebranets.pruning import Pruner
from conftest import over_kinds
from zoo import LAYERS


def model(algebra):
    return tnn.Sequential(nn.Linear(16, 16, algebra=algebra), tnn.ReLU(), nn.GRU(16, 16, algebra=algebra))


def load_dcp(target, path):
    state = target.state_dict()
    dcp.load(state, checkpoint_id=path)
    target.load_state_dict(state)


def load_dcp_model(target, path):
    state = get_model_state_dict(target)
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(target, state)


WAYS = {
    "torch.save": (
        lambda source, path: torch.save(source.state_dict(), path),
        lambda target, path: target.load_state_dict(torch.load(path, weights_only=True)),
    ),
    "safetensors": (
        lambda source, path: safetensors.torch.save_file(source.state_dict(), path),
        lambda target, path: target.load_state_dict(safetensors.torch.load_file(path)),
    ),
    "safetensors of the model": (
        lambda source, path: safetensors.torch.save_model(source, str(path)),
        lambda target, path: safetensors.torch.load_model(target, str(path)),
    ),
    "torch.distributed.checkpoint": (lambda source, path: dcp.save(source.state_dict(), checkpoint_id=path), load_dcp),
    "torch.distributed.checkpoint of the model": (
        lambda source, path: dcp.save(get_model_state_dict(source), checkpoint_id=path),
        load_dcp_model,
    ),
    "half precision": (
        lambda source, path: torch.save({k: v.bfloat16() for k, v in source.state_dict().items()}, path),
        lambda target, path: target.load_state_dict(torch.load(path, weights_only=True)),
    ),
}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("way", WAYS)
def test_the_algebra_travels_with_every_kind_of_file(way, tmp_path):
    save, load = WAYS[way]
    source, same, other = model(H), model(H), model(diagonal(4))
    save(source, tmp_path / "file")
    before = {name: p.clone() for name, p in other.named_parameters()}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*does not record the algebra")
        load(same, tmp_path / "file")
    for name, p in same.named_parameters():
        torch.testing.assert_close(p, dict(source.named_parameters())[name], rtol=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match=r"(?s)0 is over diagonal\(4\).*those of H.*2 is over diagonal\(4\)"):
        load(other, tmp_path / "file")
    if "distributed" not in way:  # which loads in place, before anything can be checked
        assert all(torch.equal(p, before[name]) for name, p in other.named_parameters())


@pytest.mark.parametrize("example", LAYERS, ids=lambda example: example.label)
def test_every_layer_with_parameters_records_its_algebra(example):
    layer = example.make(H)
    owners = {name.rpartition(".")[0] for name, _ in (*layer.named_parameters(), *layer.named_buffers())}
    owners = {owner for owner in owners if isinstance(layer.get_submodule(owner), nn.Layer)}
    recorded = {name.rpartition(".")[0] for name in layer.state_dict() if name.rpartition(".")[2] == "algebra"}
    assert recorded == owners
    assert not any("algebra" in name for name in example.make(R).state_dict())


def test_torchs_state_dicts_load_over_r_strictly_and_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Linear(8, 8, algebra=R).load_state_dict(tnn.Linear(8, 8).state_dict(), strict=True)
        tnn.Linear(8, 8).load_state_dict(nn.Linear(8, 8, algebra=R).state_dict(), strict=True)


@pytest.mark.parametrize("strict", [True, False])
def test_weights_over_an_algebra_do_not_load_over_r(strict):
    state = nn.Embedding(5, 8, algebra=H).state_dict()  # it has the shape of a real one
    with pytest.raises(RuntimeError, match=r"Embedding is over R, but the weights in the state dict are those of H"):
        nn.Embedding(5, 8, algebra=R).load_state_dict(state, strict=strict)


@over_kinds
def test_old_state_dicts_load_with_a_warning(algebra):
    layer, old = nn.Linear(2 * algebra.dim, 3 * algebra.dim, algebra=algebra), {}
    for name, value in layer.state_dict().items():
        if name != "algebra":
            old[name] = torch.randn_like(value)
    if algebra == R:
        layer.load_state_dict(old)
    else:
        with pytest.warns(UserWarning, match=re.escape(f"read as those of {algebra.name};")):
            layer.load_state_dict(old)
    assert torch.equal(layer.weight, old["weight"])


def test_a_part_of_a_state_dict_that_does_not_hold_the_layer_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        missing, unexpected = model(H).load_state_dict({}, strict=False)
    assert "0.weight" in missing
    assert not unexpected


def test_the_table_counts_and_not_the_name():
    renamed = Algebra("my quaternions", H.components, H.terms)
    nn.Linear(8, 8, algebra=renamed).load_state_dict(nn.Linear(8, 8, algebra=H).state_dict())
    swapped = Algebra("H", M2R.components, M2R.terms)
    with pytest.raises(RuntimeError, match="whose table is different"):
        nn.Embedding(3, 8, algebra=swapped).load_state_dict(nn.Embedding(3, 8, algebra=H).state_dict())


def test_a_long_name_is_cut_off():
    long = Algebra("n" * 100, H.components, H.terms)
    state = nn.Linear(8, 8, algebra=long).state_dict()
    assert state["algebra"].shape == nn.Linear(8, 8, algebra=H).state_dict()["algebra"].shape
    with pytest.raises(RuntimeError, match=r"those of n{32}, whose"):
        nn.Linear(8, 8, algebra=diagonal(4)).load_state_dict(state)


def test_parametrized_weights_record_their_algebra():
    class Twice(tnn.Module):
        def forward(self, w):
            return 2 * w

    layers = [nn.Linear(8, 8, bias=False, algebra=algebra) for algebra in (H, diagonal(4))]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Twice())
    with pytest.raises(RuntimeError, match="those of H"):
        layers[1].load_state_dict(layers[0].state_dict())


def test_sparse_models_record_their_algebra():
    def pruned(algebra):
        dense = tnn.Sequential(nn.Linear(16, 16, algebra=algebra), nn.Linear(16, 16, algebra=algebra))
        Pruner(dense, target=0.75).finish()
        return dense, an.sparse(dense, at_least=0.5)

    (_, saved), (dense, small) = pruned(H), pruned(diagonal(4))
    before = {name: value.clone() for name, value in small.state_dict().items()}
    with pytest.raises(RuntimeError, match="those of H"):
        small.load_state_dict(saved.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    with pytest.raises(RuntimeError, match="those of H"):
        an.sparse(dense, state=saved.state_dict())


def test_the_recorded_algebra_is_on_the_cpu_whatever_the_default_device_is():
    with torch.device("meta"):
        state = nn.Linear(8, 8, algebra=H).state_dict()
    assert state["weight"].is_meta
    assert not state["algebra"].is_meta
    nn.Linear(8, 8, algebra=H, device="meta").load_state_dict(nn.Linear(8, 8, algebra=H).state_dict(), assign=True)
