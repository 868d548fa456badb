"""The lab: data sets, training, recipes, reports, benchmarks and the command line.

It needs the extra ``algebranets[lab]``. The rest of the package needs only torch, safetensors and jaxtyping.
"""

from importlib.util import find_spec

_NEEDED = ("jinja2", "lightning", "matplotlib", "rich", "scipy", "sklearn", "torchmetrics", "typer")
_MISSING = [name for name in _NEEDED if find_spec(name) is None]
if _MISSING:
    raise ModuleNotFoundError(
        f"algebranets.lab needs {', '.join(_MISSING)}: install the extra with `pip install 'algebranets[lab]'`.",
        name=_MISSING[0],
    )
