"""What every test shares: the algebras that laws are checked over, and memory that is NaN until it is written."""

import os
import random
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from packaging.version import Version

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels are interpreted where none can run; triton asks when it is imported
os.environ.pop("COLUMNS", None)  # rich asks for the terminal's width when it is imported; tests set one where it counts

from algebranets.algebra import (
    CATALOGUE,
    CROSS,
    DUAL,
    M2R,
    M3R,
    SPLIT_QUATERNIONS,
    Algebra,
    C,
    H,
    R,
    cayley_dickson,
    clifford,
    cyclic,
    direct_sum,
    matrix,
    opposite,
    tensor,
)

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: more threads than cores wait for each other. Processes that tests start inherit it.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


#: For kernels with loops.
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None
    or (Version(version("triton")) < Version("3.9") and Version(version("numpy")) >= Version("2.4")),
    reason="there is no triton, or one whose interpreter is older than numpy",
)


def thinned(cases: Iterable[tuple[Any, ...]], often: Callable[..., bool]) -> list[Any]:
    """Cases for ``pytest.mark.parametrize``; ``often`` takes a case's values, and other cases are marked slow."""
    return [pytest.param(*case, marks=() if often(*case) else pytest.mark.slow) for case in cases]


def random_algebra(seed: int, dim: int, density: float = 0.3) -> Algebra:
    """A product with no structure at all: several terms in an entry, coefficients other than 1, zero rows."""
    rng = random.Random(seed)
    products = {
        (i, j): {k: rng.choice([-2, -1, 1, 3]) for k in range(dim) if rng.random() < density}
        for i in range(dim)
        for j in range(dim)
    }
    return Algebra.from_products(f"random{seed}", products, dim)


CONSTRUCTED = [
    cayley_dickson(3),
    SPLIT_QUATERNIONS,
    clifford(1, 1, 1),
    cyclic(3),
    matrix(2, over=H),
    opposite(M2R),
    direct_sum(C, M2R),
    direct_sum(M2R, M2R),
    tensor(H, DUAL),
]
RANDOM = [random_algebra(1, 3), random_algebra(2, 5), random_algebra(3, 4, density=0.1)]
ALGEBRAS = [*CATALOGUE.values(), *CONSTRUCTED, *RANDOM]
#: One algebra of each kind of block: 1 x 1, laid out, in two copies, in three, with zeros, without a unit, several
#: different ones, several terms in an entry, outputs that nothing reaches.
KINDS = [R, C, H, M2R, M3R, DUAL, CROSS, direct_sum(C, M2R), *RANDOM[1:]]
#: For tests that take long, as those of kernels do in triton's interpreter.
over_kinds = pytest.mark.parametrize("algebra", thinned(((a,) for a in ALGEBRAS), KINDS.__contains__), ids=str)


@pytest.fixture(autouse=True)
def poisoned_memory():
    """``torch.empty`` gives NaN, so that a number nobody wrote shows; seeds are fixed."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
