"""Shared by all tests: sample algebras, markers, and memory that is NaN until it is written."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" not in os.environ and not {"gpu", "-mgpu"} & set(sys.argv):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # only `pytest -m gpu` uses a GPU; workers inherit this

import torch
from packaging.version import Version

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # without a GPU, kernels are interpreted; triton reads this at import
os.environ.pop("COLUMNS", None)  # rich reads it at import; tests that depend on the width set it

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
    group_algebra,
    matrix,
    opposite,
    tensor,
)

if not torch.cuda.is_available() and find_spec("triton") is not None:
    from interpreter import skip_repeated_work

    skip_repeated_work()

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores, and more threads than cores slow each other down. Child processes inherit the setting.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


#: Skips tests of kernels with loops, which triton's interpreter before 3.9 cannot run with numpy 2.4 or later.
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None
    or (Version(version("triton")) < Version("3.9") and Version(version("numpy")) >= Version("2.4")),
    reason="needs triton, version 3.9 or later if numpy is 2.4 or later",
)


#: The newest torch whose names are classified in algebranets.nn. A newer torch may have more names.
NEWEST_TORCH = Version("2.15")
knows_torch = pytest.mark.skipif(
    Version(torch.__version__).release[:2] > NEWEST_TORCH.release, reason=f"torch is newer than {NEWEST_TORCH}"
)


def pytest_collection_finish():
    """Exempt imported modules and collected tests from garbage collection, which else takes 5 % of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # otherwise Triton's bindings print at exit that they leak


def thinned(cases: Iterable[tuple[Any, ...]], often: Callable[..., bool]) -> list[Any]:
    """Return cases for ``pytest.mark.parametrize``. Cases for which ``often(*case)`` is false are marked slow."""
    return [pytest.param(*case, marks=() if often(*case) else pytest.mark.slow) for case in cases]


def captured(step: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Run a step once and record it as a CUDA graph. The second value is what replays write."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def random_algebra(seed: int, dim: int, density: float = 0.3) -> Algebra:
    """Return an algebra without structure: entries of several terms, coefficients other than 1, zero rows."""
    rng = random.Random(seed)
    products = {
        (i, j): {k: rng.choice([-2, -1, 1, 3]) for k in range(dim) if rng.random() < density}
        for i in range(dim)
        for j in range(dim)
    }
    return Algebra.from_products(f"random{seed}", products, dim)


#: The algebra of the permutations of three things: R + R + M2(R).
S3 = group_algebra(
    [
        [0, 1, 2, 3, 4, 5],
        [1, 2, 0, 4, 5, 3],
        [2, 0, 1, 5, 3, 4],
        [3, 5, 4, 0, 2, 1],
        [4, 3, 5, 1, 0, 2],
        [5, 4, 3, 2, 1, 0],
    ],
    name="S3",
)
CONSTRUCTED = [
    cayley_dickson(3),
    SPLIT_QUATERNIONS,
    clifford(3, 0),
    tensor(C, C),
    S3,
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
#: Algebras with each kind of block: 1 x 1, larger, in two copies, in three copies, with zeros, without a unit, several
#: different blocks, entries of several terms, and outputs that are always zero. Then algebras that are stored as
#: others: as one matrix algebra that is folded, as one that is not, as several that are alike, and as several that are
#: not.
KINDS = [R, C, H, M2R, M3R, DUAL, CROSS, direct_sum(C, M2R), *RANDOM[1:]]
KINDS += [SPLIT_QUATERNIONS, clifford(3, 0), tensor(C, C), S3]
#: For tests that take long, such as tests of kernels in triton's interpreter. Other algebras are marked slow.
over_kinds = pytest.mark.parametrize("algebra", thinned(((a,) for a in ALGEBRAS), KINDS.__contains__), ids=str)


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Fix the seed, and fill the results of ``torch.empty`` with NaN so that unwritten numbers are noticed."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
