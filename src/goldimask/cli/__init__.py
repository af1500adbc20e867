"""`goldimask VERB ...`: one small file per verb, registered on the shared application."""

from __future__ import annotations

import sys

from goldimask.cli.app import app as app
from goldimask.errors import GoldimaskError


def _register() -> None:
    """Import every verb module; each registers itself and imports nothing heavy."""
    from importlib import import_module
    from pkgutil import iter_modules

    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def main() -> None:
    """Entry point of the console script."""
    debug = "--debug" in sys.argv
    sys.argv = [x for x in sys.argv if x != "--debug"]
    _register()
    try:
        app()
    except GoldimaskError as error:
        if debug:
            raise
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        if debug:
            raise
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
