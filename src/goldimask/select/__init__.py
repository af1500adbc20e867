"""Which candidates to reveal: maximisers of the reveal objective, and the controls."""

from goldimask.select import reveal as reveal  # registers the selectors
from goldimask.select.api import select_reveal as select_reveal
from goldimask.select.base import Selection as Selection


def warmup() -> None:
    """Compile every kernel (or load it from the cache on disk), outside of the first step."""
    import numpy as np

    from goldimask.select.api import SELECTOR_NAMES

    rng = np.random.default_rng(0)
    attention = rng.random((2, 40, 40), dtype=np.float32) / 40
    for selector in SELECTOR_NAMES:
        select_reveal(attention, rng.random((2, 40)), 10, selector, rng=rng, engine="numba")
