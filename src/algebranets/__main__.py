"""The command ``algebranets``, also as ``python -m algebranets``."""

import sys


def main() -> None:
    """Run the command line. Without the extra ``algebranets[lab]``, exit with one line that asks for it."""
    try:
        import algebranets.lab  # noqa: F401  (raises without the extra)
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}")
    from algebranets.lab.cli import app

    app(prog_name="algebranets")


if __name__ == "__main__":
    main()
