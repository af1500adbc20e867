"""goldimask: fine-tune masked diffusion language models by choosing what to reveal and what to
weigh.

Importing the package loads neither torch nor transformers; names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_EXPORTS = {
    "Backbone": "goldimask.backbones",
    "Batch": "goldimask.types",
    "Corruption": "goldimask.types",
    "Decoded": "goldimask.decoding",
    "EvalResult": "goldimask.eval",
    "Example": "goldimask.types",
    "GoldiTrainer": "goldimask.train.trainer",
    "GoldimaskError": "goldimask.errors",
    "Keys": "goldimask.keys",
    "MaskedStep": "goldimask.step",
    "Method": "goldimask.methods",
    "Reveal": "goldimask.types",
    "Selection": "goldimask.select",
    "Signal": "goldimask.types",
    "Signals": "goldimask.types",
    "StepOutput": "goldimask.types",
    "Stream": "goldimask.keys",
    "Weights": "goldimask.types",
    "allow_plugins": "goldimask.registry",
    "decode": "goldimask.decoding",
    "evaluate": "goldimask.eval",
    "load_backbone": "goldimask.backbones",
    "load_examples": "goldimask.data.examples",
    "make_batch": "goldimask.data.batches",
    "method": "goldimask.methods",
    "select_reveal": "goldimask.select",
}

__all__ = [*_EXPORTS, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from goldimask.backbones import Backbone as Backbone
    from goldimask.backbones import load_backbone as load_backbone
    from goldimask.data.batches import make_batch as make_batch
    from goldimask.data.examples import load_examples as load_examples
    from goldimask.decoding import Decoded as Decoded
    from goldimask.decoding import decode as decode
    from goldimask.errors import GoldimaskError as GoldimaskError
    from goldimask.eval import EvalResult as EvalResult
    from goldimask.eval import evaluate as evaluate
    from goldimask.keys import Keys as Keys
    from goldimask.keys import Stream as Stream
    from goldimask.methods import Method as Method
    from goldimask.methods import method as method
    from goldimask.registry import allow_plugins as allow_plugins
    from goldimask.select import Selection as Selection
    from goldimask.select import select_reveal as select_reveal
    from goldimask.step import MaskedStep as MaskedStep
    from goldimask.train.trainer import GoldiTrainer as GoldiTrainer
    from goldimask.types import Batch as Batch
    from goldimask.types import Corruption as Corruption
    from goldimask.types import Example as Example
    from goldimask.types import Reveal as Reveal
    from goldimask.types import Signal as Signal
    from goldimask.types import Signals as Signals
    from goldimask.types import StepOutput as StepOutput
    from goldimask.types import Weights as Weights


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'goldimask' has no attribute '{name}'")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
