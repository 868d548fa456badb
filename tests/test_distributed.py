"""Two processes: DistributedDataParallel on every layer, whitening and batch norm over the batch of all ranks."""

import copy

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import algebranets as an
import zoo
from algebranets import M2R, H
from algebranets.train.hardware import synchronise

WORLD = 2
EXAMPLES = [e for e in zoo.LAYERS if "Dropout" not in e.name and list(e.make(M2R).parameters())]


def loss_of(result):
    return sum((y.double() ** 2).sum() for y in zoo.outputs(result) if y.requires_grad)


def feed(example, algebra, rank):
    torch.manual_seed(100 + rank)
    return example.feed(algebra)


def ddp(rank):
    """Gradients under DDP are the mean of those of the ranks' inputs."""
    for algebra in (M2R, H):
        for example in EXAMPLES:
            if example.name.startswith("Whitening"):
                continue  # its ranks share statistics: below
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
    """The same of batch norms that were made to take all ranks' statistics."""
    for kind, sides in ((torch.nn.BatchNorm1d, ()), (torch.nn.BatchNorm2d, (4, 5))):
        torch.manual_seed(0)
        whole = 3 + torch.randn(10, 3, *sides, dtype=torch.float64)
        share = slice(0, 6) if rank == 0 else slice(6, 10)
        alone = kind(3, dtype=torch.float64)
        torch.nn.init.normal_(alone.weight)
        layer = torch.nn.Sequential(copy.deepcopy(alone))
        synchronise(layer)
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


def all_claims(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=WORLD)
    for claim in (ddp, whitening, batch_norm):
        claim(rank)
    dist.destroy_process_group()


def test_on_two_ranks(tmp_path):
    context = mp.spawn(all_claims, args=(tmp_path,), nprocs=WORLD, join=False)
    assert any(context.join(timeout=60) for _ in range(10))  # raises what a rank raised
    assert all(process.exitcode == 0 for process in context.processes)
