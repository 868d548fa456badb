"""The commands that measure speed: ``algebranets bench``."""

from algebranets.lab.cli.bench.commands import app

__all__ = ["app"]
