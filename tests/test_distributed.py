"""Two processes: layers under DDP, synchronized whitening and batch norm, pruning of sharded weights."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import algebranets as an
import zoo
from algebranets import M2R, H, R
from algebranets.lab.train.processes import synchronize
from algebranets.pruning import Pruner

WORLD = 2
EXAMPLES = [e for e in zoo.LAYERS if "Dropout" not in e.name and list(e.make(M2R).parameters())]


def loss_of(result):
    return sum((y.double() ** 2).sum() for y in zoo.outputs(result) if y.requires_grad)


def feed(example, algebra, rank):
    torch.manual_seed(100 + rank)
    return example.feed(algebra)


def ddp(rank):
    """Gradients under DDP are the mean of those of the ranks' inputs."""
    for algebra, examples in ((M2R, EXAMPLES), (H, [e for e in EXAMPLES if e in zoo.ONE_EACH])):
        for example in examples:
            if example.name.startswith("Whitening"):
                continue  # its ranks share statistics: see `whitening`
            torch.manual_seed(0)
            layer = example.make(algebra)
            alone = copy.deepcopy(layer)
            wrapped = DistributedDataParallel(layer)
            loss_of(wrapped(*feed(example, algebra, rank))).backward()
            for other in range(WORLD):
                (loss_of(alone(*feed(example, algebra, other))) / WORLD).backward()
            for (name, a), b in zip(layer.named_parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad, msg=lambda m, e=example, n=name: f"{e.label}.{n}: {m}")


def whitening(rank):
    """Outputs, running statistics and gradients are those of one process with the whole batch."""
    for algebra in (M2R, H):
        torch.manual_seed(0)
        whole = torch.randn(10, 3 * algebra.dim, 4, dtype=torch.float64)
        share = slice(0, 6) if rank == 0 else slice(6, 10)  # ranks may have different numbers of rows
        layer = an.nn.Whitening1d(3 * algebra.dim, algebra=algebra, dtype=torch.float64)
        alone = an.nn.Whitening1d(3 * algebra.dim, algebra=algebra, dtype=torch.float64, sync=False)
        weights = torch.randn_like(whole)
        x, y = whole[share].clone().requires_grad_(), whole.clone().requires_grad_()
        mine, expected = layer(x), alone(y)
        torch.testing.assert_close(mine, expected[share])
        torch.testing.assert_close(layer.running_covariance, alone.running_covariance)
        torch.testing.assert_close(layer.running_mean, alone.running_mean)
        (mine * weights[share]).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad[share])
        own = an.nn.Whitening1d(3 * algebra.dim, algebra=algebra, dtype=torch.float64, sync=False)
        assert not torch.allclose(own(x), expected[share])


def batch_norm(rank):
    """Synchronized batch norms give the outputs, statistics and gradients of one process with the whole batch."""
    for kind, sides in ((torch.nn.BatchNorm1d, ()), (torch.nn.BatchNorm2d, (4, 5))):
        torch.manual_seed(0)
        whole = 3 + torch.randn(10, 3, *sides, dtype=torch.float64)
        share = slice(0, 6) if rank == 0 else slice(6, 10)
        alone = kind(3, dtype=torch.float64)
        torch.nn.init.normal_(alone.weight)
        layer = torch.nn.Sequential(copy.deepcopy(alone))
        synchronize(layer)
        weights = torch.randn_like(whole)
        x, y = whole[share].clone().requires_grad_(), whole.clone().requires_grad_()
        mine, expected = layer(x), alone(y)
        torch.testing.assert_close(mine, expected[share])
        (mine * weights[share]).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad[share])
        dist.all_reduce(layer[0].weight.grad)
        torch.testing.assert_close(layer[0].weight.grad, alone.weight.grad)
        for a, b in zip(layer.buffers(), alone.buffers(), strict=True):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(layer.eval()(x), alone.eval()(y)[share])


def pruned(rank):
    """A model that is sharded after its Pruner was made is pruned like a whole one. Shards may differ in size."""

    def make(steps=10, **options):
        torch.manual_seed(0)
        sizes = ((56, 84, H), (84, 44, M2R), (44, 27, R))
        model = torch.nn.Sequential(*(an.nn.Linear(a, b, algebra=algebra) for a, b, algebra in sizes)).double()
        return model, Pruner(model, 0.6, steps=steps, every=2, layers="*", **options)

    def train(model, pruner, share):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for step in range(10):
            optimizer.zero_grad()
            x = torch.randn(8, 56, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            model(x[share]).square().mean().backward()
            optimizer.step()
            pruner.step()

    for options in ({}, {"regrow": True, "scope": "global", "criterion": "largest-eigenvalue"}):
        (whole, alone), (model, pruner) = make(**options), make(**options)
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        train(whole, alone, slice(None))
        train(model, pruner, slice(4 * rank, 4 * rank + 4))
        assert pruner.sparsity == alone.sparsity
        for mine, theirs in zip(model, whole, strict=True):
            torch.testing.assert_close(mine.weight.full_tensor(), theirs.weight)
            assert torch.equal(mine.weight.full_tensor() == 0, theirs.weight == 0)
        with pytest.raises(ValueError, match=r"0\.weight is sharded, and masks can only be removed from whole weights"):
            pruner.finish()
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            last, finishing = make()
            last.load_state_dict(state)
            finishing.finish()
            torch.testing.assert_close(last[0].weight, whole[0].weight)
    for use_orig_params in (True, False):
        model, pruner = make()
        FullyShardedDataParallel(model, use_orig_params=use_orig_params, device_id=torch.device("cpu"))
        with pytest.raises(ValueError, match=r"0\.weight must be a whole tensor to be pruned.*fully_shard instead of"):
            pruner.prune(0.5)
    plain = torch.nn.Sequential(an.nn.Linear(8, 8, algebra=H))
    fully_shard(plain)
    with pytest.raises(ValueError, match=r"0\.weight is sharded already: make the Pruner before fully_shard"):
        Pruner(plain, 0.5, layers="*")
    assert "0.weight" in plain.state_dict()


def all_claims(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=WORLD)
    for claim in (ddp, whitening, batch_norm, pruned):
        claim(rank)
    dist.destroy_process_group()


@pytest.mark.slow
def test_on_two_ranks(tmp_path):
    context = mp.spawn(all_claims, args=(tmp_path,), nprocs=WORLD, join=False)
    assert any(context.join(timeout=60) for _ in range(10))  # raises the error of a rank
    assert all(process.exitcode == 0 for process in context.processes)
