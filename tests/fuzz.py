"""Settings of fuzz tests, which draw random input and expect a result or a clear error.

`pytest -m fuzz` runs about 2,000 cases, the same ones each time, and so does the whole suite. ``FUZZ_CASES=20000 pytest
-m fuzz`` runs 20,000 random cases, new ones each time.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

#: The number of cases of all fuzz tests together, unless FUZZ_CASES is set.
USUAL_CASES = 2000


def fuzzed(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a hypothesis test as a fuzz test that runs this share of all cases. Apply it above ``@given``."""
    cases = int(os.environ.get("FUZZ_CASES", USUAL_CASES))
    chosen = settings(
        max_examples=max(1, round(share * cases)),
        derandomize="FUZZ_CASES" not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: pytest.mark.fuzz(chosen(test))
