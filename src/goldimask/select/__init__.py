"""Which candidates to reveal: maximisers of the reveal objective, and the controls."""

from collections.abc import Sequence

from goldimask.select import reveal as reveal  # registers the selectors
from goldimask.select.api import SELECTOR_NAMES as SELECTOR_NAMES
from goldimask.select.api import select_reveal as select_reveal
from goldimask.select.base import Selection as Selection


def warmup(selectors: Sequence[str] = SELECTOR_NAMES) -> None:
    """Compile the kernels (or load them from the cache on disk), outside of the first step."""
    import numpy as np

    rng = np.random.default_rng(0)
    attention = rng.random((2, 40, 40), dtype=np.float32) / 40
    for selector in selectors:
        select_reveal(attention, rng.random((2, 40)), 10, selector, rng=rng, engine="host")
