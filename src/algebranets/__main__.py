"""``python -m algebranets`` is the command ``algebranets``."""

from algebranets.cli import app

if __name__ == "__main__":
    app(prog_name="algebranets")
