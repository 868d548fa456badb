"""State dicts record the algebra of every weight, and loading weights of another algebra is an error."""

import re
import warnings
from copy import deepcopy

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn as tnn
from torch._subclasses import FakeTensorMode
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

import algebranets as an
from algebranets import nn
from algebranets.algebra import M2R, Algebra, C, H, R, clifford, diagonal, tensor
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
def test_every_kind_of_file_records_the_algebra(way, tmp_path):
    save, load = WAYS[way]
    source, same, other = model(H), model(H), model(diagonal(4))
    save(source, tmp_path / "file")
    before = {name: p.clone() for name, p in other.named_parameters()}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*does not record the algebra")
        load(same, tmp_path / "file")
    for name, p in same.named_parameters():
        torch.testing.assert_close(p, dict(source.named_parameters())[name], rtol=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match=r"(?s)0 is over diagonal\(4\).*weights over H.*2 is over diagonal\(4\)"):
        load(other, tmp_path / "file")
    if "distributed" not in way:  # it loads in place before the algebra is checked
        assert all(torch.equal(p, before[name]) for name, p in other.named_parameters())


@pytest.mark.parametrize("example", LAYERS, ids=lambda example: example.label)
def test_every_layer_with_parameters_records_its_algebra(example):
    layer = example.make(H)
    owners = {name.rpartition(".")[0] for name, _ in (*layer.named_parameters(), *layer.named_buffers())}
    owners = {owner for owner in owners if isinstance(layer.get_submodule(owner), nn.Layer)}
    recorded = {name.rpartition(".")[0] for name in layer.state_dict() if name.rpartition(".")[2] == "algebra_id"}
    assert recorded == owners
    assert not any("algebra" in name for name in example.make(R).state_dict())


def test_torchs_state_dicts_load_over_r_strictly_and_without_a_warning():
    for source, target in (
        (tnn.Linear(8, 8), nn.Linear(8, 8, algebra=R)),
        (nn.Linear(8, 8, algebra=R), tnn.Linear(8, 8)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.load_state_dict(source.state_dict(), strict=True)
        assert torch.equal(target.weight, source.weight)
        assert torch.equal(target.bias, source.bias)


@pytest.mark.parametrize("strict", [True, False])
def test_weights_over_an_algebra_do_not_load_over_r(strict):
    state = nn.Embedding(5, 8, algebra=H).state_dict()  # it has the shape of a real one
    with pytest.raises(RuntimeError, match=r"Embedding is over R, but the state dict holds weights over H"):
        nn.Embedding(5, 8, algebra=R).load_state_dict(state, strict=strict)


@over_kinds
def test_old_state_dicts_load_with_a_warning(algebra):
    layer, old = nn.Linear(2 * algebra.dim, 3 * algebra.dim, algebra=algebra), {}
    for name, value in layer.state_dict().items():
        if name != "algebra_id":
            old[name] = torch.randn_like(value)
    if algebra == R:
        layer.load_state_dict(old)
    elif algebra.change is None:
        with pytest.warns(UserWarning, match=re.escape(f"loaded as weights over {algebra.name}.")):
            layer.load_state_dict(old)
    else:
        old["weight"] = torch.randn(3 * algebra.dim, 2)
        with pytest.warns(UserWarning, match=re.escape(f"over {algebra.name}, in the basis of its table.")):
            layer.load_state_dict(old)
        torch.testing.assert_close(layer.weight_tuples, old["weight"].view(algebra.dim, 3, 2))
        return
    assert torch.equal(layer.weight, old["weight"])


def in_old_basis(layer):
    """Return a state dict as older versions saved it: weights component by component in the basis of the table."""
    state = layer.state_dict()
    for weight in layer.algebra_weights():
        tuples = weight.tuples(getattr(layer, weight.name).detach())
        state[weight.name] = tuples.unflatten(1, (weight.stacks, -1)).transpose(0, 1).flatten(0, 2)
    state["algebra_id"][-4:] = 0
    return state


@pytest.mark.parametrize("algebra", [clifford(2, 0), clifford(3, 0), tensor(C, C)], ids=str)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("Linear", (16, 24)), ("ConvTranspose2d", (16, 24, 3)), ("GRU", (16, 24)), ("Bilinear", (8, 8, 8))],
)
def test_weights_in_the_basis_of_the_table_are_converted(algebra, name, sizes):
    layer, other = (getattr(nn, name)(*sizes, algebra=algebra) for _ in range(2))
    other.load_state_dict(in_old_basis(layer))
    for parameter, expected in zip(other.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected)
    other.load_state_dict(layer.state_dict())  # saved by this version: nothing changes
    for parameter, expected in zip(other.parameters(), layer.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_sparse_weights_in_the_basis_of_the_table_are_converted():
    dense = nn.Linear(16, 16, algebra=clifford(3, 0))
    dense.weight_tuples = torch.randn(8, 2, 2) * torch.eye(2)
    layer = an.sparse(dense, at_least=0.5)
    state = layer.state_dict()
    state["values"] = torch.stack([dense.weight_tuples[:, n, n] for n in range(2)]).detach()
    state["algebra_id"][-4:] = 0
    other = deepcopy(layer)
    with torch.no_grad():
        other.values.zero_()
    other.load_state_dict(state)
    torch.testing.assert_close(other.values, layer.values)


def test_weights_in_an_unknown_basis_are_refused():
    layer = nn.Linear(8, 8, algebra=clifford(2, 0))
    state = layer.state_dict()
    state["algebra_id"][-1] ^= 1
    with pytest.raises(
        RuntimeError, match=r"Linear are stored in a basis that this version .* save layer.weight_tuples"
    ):
        layer.load_state_dict(state)


def test_parametrized_weights_in_the_basis_of_the_table_are_refused():
    layer = nn.utils.weight_norm(nn.Linear(8, 8, algebra=clifford(2, 0)))
    state = layer.state_dict()
    state["algebra_id"][-4:] = 0
    with pytest.raises(
        RuntimeError, match=r"weight is parametrized, and was saved by an older version .* another basis"
    ):
        layer.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_old_distributed_checkpoints_load_with_a_warning(tmp_path):
    """torch.distributed.checkpoint refuses to load an entry that the checkpoint lacks, so it must not be asked for."""
    layer, other = nn.Linear(8, 8, algebra=H), nn.Linear(8, 8, algebra=H)
    dcp.save(dict(layer.named_parameters()), checkpoint_id=tmp_path)
    state = {name: value for name, value in other.state_dict().items() if name in ("weight", "bias")}
    dcp.load(state, checkpoint_id=tmp_path)
    with pytest.warns(UserWarning, match="does not record"):
        other.load_state_dict(state)
    assert torch.equal(other.weight, layer.weight)


def test_a_part_of_a_state_dict_that_does_not_hold_the_layer_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        missing, unexpected = model(H).load_state_dict({}, strict=False)
    assert "0.weight" in missing
    assert not unexpected


def test_an_old_state_dict_that_does_not_fit_is_an_error_without_a_warning():
    old = {"weight": torch.zeros(16, 4), "bias": torch.zeros(16)}
    with warnings.catch_warnings(action="error"), pytest.raises(RuntimeError, match="size mismatch for weight"):
        nn.Linear(8, 8, algebra=H).load_state_dict(old)


def test_tables_are_compared_and_names_are_not():
    renamed = Algebra("my quaternions", H.components, H.terms)
    nn.Linear(8, 8, algebra=renamed).load_state_dict(nn.Linear(8, 8, algebra=H).state_dict())
    swapped = Algebra("H", M2R.components, M2R.terms)
    with pytest.raises(RuntimeError, match="which has a different multiplication table"):
        nn.Embedding(3, 8, algebra=swapped).load_state_dict(nn.Embedding(3, 8, algebra=H).state_dict())


def test_a_long_name_is_cut_off():
    long = Algebra("n" * 100, H.components, H.terms)
    state = nn.Linear(8, 8, algebra=long).state_dict()
    assert state["algebra_id"].shape == nn.Linear(8, 8, algebra=H).state_dict()["algebra_id"].shape
    with pytest.raises(RuntimeError, match=r"weights over n{28}, which"):
        nn.Linear(8, 8, algebra=diagonal(4)).load_state_dict(state)


def test_parametrized_weights_record_their_algebra():
    class Twice(tnn.Module):
        def forward(self, w):
            return 2 * w

    layers = [nn.Linear(8, 8, bias=False, algebra=algebra) for algebra in (H, diagonal(4))]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Twice())
    with pytest.raises(RuntimeError, match="weights over H"):
        layers[1].load_state_dict(layers[0].state_dict())


def test_sparse_models_record_their_algebra():
    def pruned(algebra, target):
        dense = tnn.Sequential(nn.Linear(16, 16, algebra=algebra), nn.Linear(16, 16, algebra=algebra))
        Pruner(dense, target=target).finish()
        return dense, an.sparse(dense, at_least=0.5)

    (_, saved), (dense, small) = pruned(H, 0.5), pruned(diagonal(4), 0.75)
    before = {name: value.clone() for name, value in small.state_dict().items()}
    with pytest.raises(RuntimeError, match="weights over H"):
        small.load_state_dict(saved.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    with pytest.raises(RuntimeError, match="weights over H"):
        an.sparse(dense, state=saved.state_dict())


@pytest.mark.parametrize("algebra", [R, H, M2R], ids=str)
def test_a_model_is_called_with_a_state_dict_in_place_of_its_parameters(algebra):
    layer, other = model(algebra), model(algebra)
    x = torch.randn(3, 16)
    out, _ = torch.func.functional_call(layer, other.state_dict(), x)
    assert torch.equal(out, other(x)[0])
    assert not torch.equal(out, layer(x)[0])


@pytest.mark.parametrize("num", [2, 3, 10])
def test_the_mean_of_state_dicts_has_their_algebra(num):
    states = [model(H).state_dict() for _ in range(num)]
    means = [
        {name: sum(state[name] for state in states) / num for name in states[0]},
        {name: sum(state[name] * (1 / num) for state in states) for name in states[0]},
    ]
    for mean in means:
        model(H).load_state_dict(mean)
        with pytest.raises(RuntimeError, match="over H"):
            model(diagonal(4)).load_state_dict(mean)


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


WRAPPERS = {
    "plain": lambda module: module,
    "compiled": lambda module: torch.compile(module, backend="eager"),
    "DDP": DistributedDataParallel,
}


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("options", [(), ("full_state_dict",), ("full_state_dict", "broadcast_from_rank0")], ids=str)
@pytest.mark.parametrize("cpu_offload", [True, False])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_distributed_state_dicts_of_wrapped_models_record_the_algebra(wrapper, cpu_offload, options):
    source, same, other = (WRAPPERS[wrapper](model(algebra)) for algebra in (H, H, diagonal(4)))
    chosen = StateDictOptions(cpu_offload=cpu_offload, **dict.fromkeys(options, True))
    state = get_model_state_dict(source)
    assert "0.algebra_id" in state
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*does not record the algebra")
        set_model_state_dict(same, dict(state), options=chosen)
    for p, expected in zip(same.parameters(), source.parameters(), strict=True):
        assert torch.equal(p, expected)
    with pytest.raises(RuntimeError, match=r"over H"):
        set_model_state_dict(other, dict(state), options=chosen)


@pytest.mark.usefixtures("one_process")
def test_the_algebra_is_read_from_sharded_tensors():
    mesh = init_device_mesh("cpu", (1,))
    state = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in model(H).state_dict().items()}
    for algebra in (H, diagonal(4)):
        target = model(algebra)
        for layer in (target[0], target[2], target):
            fully_shard(layer, mesh=mesh)
        if algebra == H:
            target.load_state_dict(state)
        else:
            with pytest.raises(RuntimeError, match=r"over H"):
                target.load_state_dict(state)


def test_state_dicts_without_values_are_loaded():
    with FakeTensorMode():
        missing, unexpected = model(H).load_state_dict(model(H).state_dict())
    assert not missing
    assert not unexpected


@pytest.mark.parametrize("in_context", [True, False])
def test_the_recorded_algebra_is_on_the_device_of_the_weights(in_context):
    """A model that is made on the meta device gets all of its tensors from the state dict."""
    if in_context:
        with torch.device("meta"):
            layer = nn.Linear(8, 8, algebra=H)
    else:
        layer = nn.Linear(8, 8, algebra=H, device="meta")
    assert all(value.is_meta for value in layer.state_dict().values())
    layer.load_state_dict(nn.Linear(8, 8, algebra=H).state_dict(), assign=True)
    assert not any(tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))
    other = nn.Linear(8, 8, algebra=diagonal(4), device="meta")
    with pytest.raises(RuntimeError, match="weights over H"):
        other.load_state_dict(layer.state_dict(), assign=True)


def test_a_layer_without_values_saves_its_algebra():
    layer = nn.Linear(8, 8, algebra=H, device="meta").to_empty(device="cpu")
    layer.algebra_id.zero_()
    assert torch.equal(layer.state_dict()["algebra_id"], nn.Linear(8, 8, algebra=H).state_dict()["algebra_id"])
