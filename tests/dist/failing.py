"""A weigher that fails on the second process after a few steps, for a recipe to name."""

from __future__ import annotations

import os

from goldimask.errors import RunFailed
from goldimask.weighting import WEIGHERS, Uniform, Weigh

CALLS = {"n": 0}


class Failing(Uniform):
    """Uniform weights until the sixth call on rank 1."""

    def __call__(self, *args, **kwargs):
        CALLS["n"] += 1
        if os.environ.get("RANK") == "1" and os.environ.get("FAIL") and CALLS["n"] > 5:
            raise RunFailed("the weigher gave up")
        return super().__call__(*args, **kwargs)


@WEIGHERS.register("failing")
def weigh() -> Weigh:
    """Uniform weights, until they fail."""
    return Failing()
