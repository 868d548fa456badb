"""Neural networks over algebras: torch.nn's layers with tuples instead of numbers.

>>> import torch, algebranets as an
>>> nn = an.over("M2R")  # was: from torch import nn
>>> layer = nn.Linear(512, 512)  # a quarter of the parameters, half of the multiplies
>>> layer(torch.randn(8, 512)).shape
torch.Size([8, 512])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in `_HOMES` and `_SUBPACKAGES`, for type checkers and editors
    from algebranets import accounting as accounting
    from algebranets import algebra, models, nn, product
    from algebranets import conversion as conversion
    from algebranets import ops as ops
    from algebranets import pruning as pruning
    from algebranets.accounting.account import account
    from algebranets.algebra import CROSS, DUAL, M2C, M2R, M3R, M4R, Algebra, C, H, R, diagonal
    from algebranets.conversion import fold, to_real
    from algebranets.conversion.convert import convert, convert_
    from algebranets.conversion.export import export
    from algebranets.nn.namespace import over
    from algebranets.nn.quantization import quantize
    from algebranets.nn.sparse import sparse
    from algebranets.product import cat, chunk, from_tuples, join_heads, split, split_heads, tuples

__version__ = "0.2.0.dev0"

__all__ = [
    "CROSS",
    "DUAL",
    "M2C",
    "M2R",
    "M3R",
    "M4R",
    "Algebra",
    "C",
    "H",
    "R",
    "account",
    "algebra",
    "cat",
    "chunk",
    "convert",
    "convert_",
    "diagonal",
    "export",
    "fold",
    "from_tuples",
    "join_heads",
    "models",
    "nn",
    "over",
    "product",
    "quantize",
    "sparse",
    "split",
    "split_heads",
    "to_real",
    "tuples",
]

#: The module in which each public name is defined. It is imported when the name is first used, because importing torch
#: takes seconds, and `algebranets --help` does not need it.
_HOMES = {
    name: f"algebranets.{module}"
    for module, names in {
        "accounting.account": ("account",),
        "algebra": ("CROSS", "DUAL", "M2C", "M2R", "M3R", "M4R", "Algebra", "C", "H", "R", "diagonal"),
        "conversion": ("fold", "to_real"),
        "conversion.convert": ("convert", "convert_"),
        "conversion.export": ("export",),
        "nn.namespace": ("over",),
        "nn.quantization": ("quantize",),
        "nn.sparse": ("sparse",),
        "product": ("cat", "chunk", "from_tuples", "join_heads", "split", "split_heads", "tuples"),
    }.items()
    for name in names
}

#: Attributes of this package, without an import of their own. `from algebranets import *` only imports `__all__`.
_SUBPACKAGES = ("accounting", "algebra", "conversion", "models", "nn", "ops", "product", "pruning")

#: What the public names need, in the order in which it is imported. Threads that use the first names at the same time
#: import in the same order and wait for each other. In different orders, Python's import locks deadlock.
_IMPORT_ORDER = ("algebra", "torch", "ops", "product", "nn", "accounting", "models", "conversion", "pruning")


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used (PEP 562)."""
        if name not in __all__ and name not in _SUBPACKAGES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name, f"algebranets.{name}")
        package = home.split(".")[1]
        for part in _IMPORT_ORDER[: _IMPORT_ORDER.index(package) + 1]:
            import_module(part if part == "torch" else f"algebranets.{part}")
        value = getattr(import_module(home), name) if name in _HOMES else import_module(home)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List all public names and subpackages, also those that are not imported yet."""
    return sorted({*__all__, *_SUBPACKAGES, "__version__"})
