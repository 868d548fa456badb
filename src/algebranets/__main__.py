"""The command ``algebranets``, also as ``python -m algebranets``."""

import sys


def main() -> None:
    """Run the command line. Without the extra ``algebranets[lab]``, an error asks for it, and the exit code is 2."""
    try:
        import algebranets.lab  # noqa: F401  (raises without the extra)
    except ModuleNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    from algebranets.lab.cli import app

    app(prog_name="algebranets")


if __name__ == "__main__":
    main()
