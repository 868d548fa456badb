"""Tests of made-up input: nothing may end in a traceback, whatever it is given.

`pytest -m fuzz` runs about 2,000 cases, the same ones each time, and so does the whole suite. ``FUZZ_CASES=20000 pytest
-m fuzz`` runs as many others, new ones each time.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

#: Cases of all fuzz tests together, when nobody asks for more.
USUAL_CASES = 2000


def fuzzed(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a hypothesis test as fuzzing; it runs this share of all cases. Write it above ``@given``."""
    cases = int(os.environ.get("FUZZ_CASES", USUAL_CASES))
    chosen = settings(
        max_examples=max(1, round(share * cases)),
        derandomize="FUZZ_CASES" not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: pytest.mark.fuzz(chosen(test))
