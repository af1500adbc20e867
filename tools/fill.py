"""Put the tables of a campaign into a page, so that no figure of it is typed by hand.

    python tools/fill.py docs/results.md docs/results

replaces what stands between `<!-- lab: FOLDER/TABLE -->` and `<!-- end -->` by the file
ROOT/FOLDER/TABLE.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SLOT = re.compile(r"(<!-- lab: (\S+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill(document: Path, root: Path) -> int:
    """Replace every marked table by the file it names; returns how many there are."""
    text = document.read_text("utf-8")
    count = 0

    def table(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        file = root / f"{found.group(2)}.md"
        return f"{found.group(1)}{file.read_text('utf-8').rstrip()}\n{found.group(4)}"

    filled = SLOT.sub(table, text)
    document.write_text(filled, "utf-8")
    return count


if __name__ == "__main__":
    print(f"{fill(Path(sys.argv[1]), Path(sys.argv[2]))} tables in {sys.argv[1]}")
