"""Decoding of masked diffusion models: `decode(backbone, prompts, decoder) -> list[Decoded]`.

The package itself can be called, so that both `goldimask.decode(...)` and
`goldimask.decode.decode(...)` work.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from goldimask.decode.engine import decode as decode
from goldimask.decode.engine import decode_iter as decode_iter
from goldimask.decode.rules import DECODERS as DECODERS
from goldimask.decode.rules import Decoder as Decoder
from goldimask.decode.types import Commit as Commit
from goldimask.decode.types import Decoded as Decoded
from goldimask.decode.types import Settings as Settings

__all__ = ["DECODERS", "Commit", "Decoded", "Decoder", "Settings", "decode", "decode_iter"]


class _Callable(ModuleType):
    """A package and its main function share a name; Python lets a module's class say so."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[Decoded]:
        return decode(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
