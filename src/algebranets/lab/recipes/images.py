"""Recipes on images: the paper's experiments, the same networks on other data sets, and a small experiment."""

from __future__ import annotations

from dataclasses import replace

from algebranets import algebra as algebras
from algebranets.lab.train import Experiment, Images, Optimizer, Pruning, Schedule

#: Section 4.1: the number of epochs, and the epochs after which the learning rate is multiplied by 0.1.
IMAGENET_EPOCHS, MILESTONES = 180, (60, 100, 140, 160)
#: The paper prints 2.5 for batches of 256, which looks like the rate for a far larger batch. Goyal et al. (2017) use
#: 0.1 for 256 and scale it with the batch size. By this rule 2.5 belongs to a batch of 6400. We use 0.1.
IMAGENET_LR = 0.1
IMAGENET_L2 = 1e-4
#: The factors by which the paper scales the L2 of AlgebraNets (Section 4.1).
RESNET_L2_SCALE, MOBILENET_L2_SCALE = 0.725, 0.625


def resnet50(algebra: str, width: float) -> Experiment:
    """ResNet-50 on ImageNet (Section 4.1, Figure 1)."""
    return _imagenet("resnet50", algebra, width, RESNET_L2_SCALE)


def mobilenet_v1(algebra: str, width: float) -> Experiment:
    """MobileNet-v1 on ImageNet (Section 4.1, Figure 2)."""
    return _imagenet("mobilenet_v1", algebra, width, MOBILENET_L2_SCALE)


def resnet50_pruned(algebra: str, width: float) -> Experiment:
    """ResNet-50 on ImageNet with nine of ten tuples pruned during training, and ReLU (Section 4.2, Figure 3)."""
    dense = resnet50(algebra, width)
    model = {**dense.model, "activation": "relu"}
    return replace(dense, recipe="resnet50-pruned", model=model, pruning=Pruning(sparsity=0.9))


def tiny_imagenet_resnet50(algebra: str, width: float) -> Experiment:
    """ResNet-50 on Tiny ImageNet: not in the paper, and not trained to the end by us.

    The settings are those of `resnet50` for images of 64 x 64 pixels, in half as many epochs.
    """
    return _tiny_imagenet("tiny-imagenet-resnet50", resnet50(algebra, width))


def tiny_imagenet_mobilenet(algebra: str, width: float) -> Experiment:
    """MobileNet-v1 on Tiny ImageNet: not in the paper, and not trained to the end by us.

    The settings are those of `mobilenet_v1` for images of 64 x 64 pixels, in half as many epochs.
    """
    return _tiny_imagenet("tiny-imagenet-mobilenet", mobilenet_v1(algebra, width))


def _imagenet(model: str, algebra: str, width: float, l2_scale: float) -> Experiment:
    """An experiment on ImageNet with swish, as in the paper's trade-off figures; ``l2_scale`` is for AlgebraNets."""
    decay = IMAGENET_L2 * (l2_scale if algebras.get(algebra).dim > 1 else 1)
    return Experiment(
        recipe=model,
        algebra=algebra,
        width=width,
        model={"name": model, "activation": "swish"},
        data=Images("imagenet", batch_size=256, crop=224, eval_batch_size=256),
        optimizer=Optimizer(lr=IMAGENET_LR, momentum=0.9, weight_decay=decay),
        schedule=Schedule("steps", warmup=5 / 180, milestones=tuple(m / IMAGENET_EPOCHS for m in MILESTONES)),
        epochs=IMAGENET_EPOCHS,
        evaluations=IMAGENET_EPOCHS,
    )


def _tiny_imagenet(recipe: str, imagenet: Experiment) -> Experiment:
    data = Images("tiny-imagenet", batch_size=256, crop=64, eval_batch_size=256)
    return replace(imagenet, recipe=recipe, data=data, epochs=90, evaluations=30)


def cifar10(algebra: str, width: float) -> Experiment:
    """A row of the CIFAR-10 table (appendix); ``--set model.norm=whitening`` makes the whitened rows.

    The paper gives the crops and flips, but not the schedule, learning rate, L2, label smoothing and batch size. These
    are ours. The L2 is smaller for AlgebraNets, as in the paper's ImageNet experiments.
    """
    decay = 5e-4 if algebras.get(algebra).dim == 1 else 3e-4
    return Experiment(
        recipe="cifar10",
        algebra=algebra,
        width=width,
        model={"name": "cifar_resnet"},
        data=Images("cifar10", batch_size=500, crop=24),
        optimizer=Optimizer(lr=0.4, momentum=0.9, nesterov=True, weight_decay=decay),
        schedule=Schedule("linear", warmup=0.2),
        epochs=200,
        label_smoothing=0.1,
    )


def cifar10_pruned(algebra: str, width: float) -> Experiment:
    """The CIFAR-10 network with nine of ten tuples pruned during training: Section 4.2 in minutes on a GPU.

    ``--set pruning.sparsity=0`` trains the dense network. ``pruning.unit=component`` and ``pruning.criterion`` give the
    variants that the paper compares in Tables 4 and 5.
    """
    dense = cifar10(algebra, width)
    return replace(dense, recipe="cifar10-pruned", epochs=40, evaluations=5, pruning=Pruning(sparsity=0.9))


def cifar100(algebra: str, width: float) -> Experiment:
    """The CIFAR-10 network and settings on CIFAR-100: not in the paper, and not trained to the end by us."""
    return replace(cifar10(algebra, width), recipe="cifar100", data=Images("cifar100", batch_size=500, crop=24))


def mnist(algebra: str, width: float) -> Experiment:
    """The CIFAR-10 network on MNIST: not in the paper, and not trained to the end by us.

    Images are shifted by up to two pixels and not mirrored, because a mirrored digit is not a digit.
    """
    data = Images("mnist", batch_size=500, padding=2, flip=False)
    return replace(cifar10(algebra, width), recipe="mnist", data=data, epochs=20, evaluations=10)


def fashion_mnist(algebra: str, width: float) -> Experiment:
    """The CIFAR-10 network on Fashion-MNIST: not in the paper, and not trained to the end by us.

    Images are shifted by up to two pixels, and half of them are mirrored.
    """
    data = Images("fashion-mnist", batch_size=500, padding=2)
    return replace(cifar10(algebra, width), recipe="fashion-mnist", data=data, epochs=60)


def digits(algebra: str, width: float) -> Experiment:
    """A small CIFAR network on scikit-learn's digits, 8 x 8 pixels: seconds on a CPU, without a download."""
    return Experiment(
        recipe="digits",
        algebra=algebra,
        width=width,
        model={"name": "cifar_resnet", "num_blocks": 1},
        data=Images("digits", batch_size=100, padding=1, flip=False),
        optimizer=Optimizer(lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
        schedule=Schedule("linear", warmup=0.2),
        epochs=20,
    )
