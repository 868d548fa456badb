"""Any torch model becomes an AlgebraNet, and leaves as plain torch, ONNX or a pretrained folder."""

from typing import Any

from algebranets.conversion.convert import apply_plan, convert, convert_
from algebranets.conversion.export import Artifact, export
from algebranets.conversion.folding import fold
from algebranets.conversion.real import to_real
from algebranets.conversion.report import Conversion
from algebranets.conversion.sources import create

__all__ = [
    "Artifact",
    "Conversion",
    "PretrainedModel",
    "apply_plan",
    "convert",
    "convert_",
    "create",
    "export",
    "fold",
    "to_real",
]


def __getattr__(name: str) -> Any:
    """Import `PretrainedModel` when it is first used, because huggingface_hub is slow to import."""
    if name == "PretrainedModel":
        from algebranets.conversion.hub import PretrainedModel

        return PretrainedModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
