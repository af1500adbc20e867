"""Decoding of masked diffusion models: `decode(backbone, prompts, decoder) -> list[Decoded]`."""

from __future__ import annotations

from goldimask.decoding.engine import decode as decode
from goldimask.decoding.engine import decode_iter as decode_iter
from goldimask.decoding.engine import decode_with as decode_with
from goldimask.decoding.options import make_settings as make_settings
from goldimask.decoding.rules import DECODERS as DECODERS
from goldimask.decoding.rules import Decoder as Decoder
from goldimask.decoding.types import Commit as Commit
from goldimask.decoding.types import Decoded as Decoded
from goldimask.decoding.types import Settings as Settings

__all__ = [
    "DECODERS",
    "Commit",
    "Decoded",
    "Decoder",
    "Settings",
    "decode",
    "decode_iter",
    "decode_with",
    "make_settings",
]
