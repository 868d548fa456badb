"""Runs a script in a process that cannot import algebranets."""

import subprocess
import sys
from pathlib import Path

import algebranets

_HIDE = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "algebranets":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
import torch
sys.path[:] = [path for path in sys.path if path != sys.argv[1]]
del sys.argv[1]
try:
    import algebranets
except ImportError:
    pass
else:
    raise AssertionError("algebranets can be imported")
"""


def run_alone(script: str, *arguments: object) -> str:
    """Run a script with arguments, and return what it prints. ``sys`` and ``torch`` are imported already."""
    source = Path(algebranets.__file__).parents[1]
    command = [sys.executable, "-I", "-c", _HIDE + script, str(source), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout
