"""`goldimask VERB ...`: one file per family of verbs, imported when one of them is called."""

from __future__ import annotations

import sys
from contextlib import suppress

from goldimask.cli.app import app as app
from goldimask.console import visible
from goldimask.errors import GoldimaskError


def main() -> None:
    """Entry point of the console script."""
    debug = "--debug" in sys.argv
    sys.argv = [x for x in sys.argv if x != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # half a character is shown as `\\ud800`, as JSON has it
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore
    try:
        app()
    except GoldimaskError as error:
        if debug:
            raise
        sys.stderr.write(f"error: {visible(str(error))}\n")
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # whoever read the output has gone
        raise SystemExit(141) from None
    except OSError as error:  # a folder that cannot be written, a full disk
        if debug or error.filename is None:
            raise
        sys.stderr.write(visible(f"error: '{error.filename}': {error.strerror}\n"))
        raise SystemExit(GoldimaskError.exit_code) from None
    except KeyboardInterrupt:
        if debug:
            raise
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
