"""Intervals, paired tests and pass@k (paper, appendix on evaluation; stack of the project).

Wilson:    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n),   z = 1.959964 for 95 %
pass@k:    1 - C(n-c, k) / C(n, k), the mean over problems with n samples, c of them correct
"""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def wilson(correct: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The Wilson interval of a proportion; (0, 1) when nothing was measured."""
    if n <= 0:
        return 0.0, 1.0
    p = correct / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if correct == n else min(1.0, (centre + half) / scale)
    return low, high
