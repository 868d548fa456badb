"""Imports the libraries that tests compare with, and skips the tests if they are not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch


def installed(package: str) -> Any:
    """Return a package, or skip the test if it is not installed."""
    return pytest.importorskip(package, reason=f"{package} is missing: pip install -e '.[dev,peers]'")


@contextmanager
def speechbrain_importable() -> Iterator[None]:
    """Within the context, SpeechBrain can be imported. After it, it is no longer among the imported modules."""
    with pytest.MonkeyPatch.context() as patch:
        # It imports torchaudio, which refuses a torch of another CUDA version. The layers do not need torchaudio.
        patch.setattr(torch.version, "cuda", None)
        # It would turn on TF32 and turn off the profiling of torch.jit, for the tests that follow as well.
        patch.setenv("SB_DISABLE_QUIRKS", "allow_tf32,disable_jit_profiling")
        try:
            installed("speechbrain")
        except (OSError, RuntimeError) as error:
            pytest.skip(f"speechbrain needs a torchaudio that fits torch: {error}")
        yield
    # Some of its modules import others when their attributes are read. hypothesis reads those of every module, and its
    # tests then fail because the data it draws depends on which modules there are.
    for module in [module for module in sys.modules if module.partition(".")[0] == "speechbrain"]:
        del sys.modules[module]
