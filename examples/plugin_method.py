"""A method of your own, without touching goldimask: a selector, a weigher and a preset.

The selector reveals the most confident candidates first; the weigher gives each target 1 - p,
scaled to mean one. Both are ordinary callables with the signals they `need`; the step does the
rest.

Whatever registers itself can be named, and nothing else. Three ways to use it:

1. `import plugin_method` in your own Python; from then on the names below are known;

2. from a recipe by `module:attribute`, with `goldimask train RECIPE --allow-plugins` (in Python:
   `with goldimask.allow_plugins():`), because importing the module runs its code:

       method:
         preset: goldimask-d
         select: {kind: "plugin_method:easy_first"}
         weigh: {kind: "plugin_method:one_minus_p", floor: 0.1}

   or all of it at once, `method: {preset: "plugin_method:EASY_FIRST"}`;

3. installed with your package, so that the short names work everywhere, without the option, and
   `goldimask list methods` shows them:

       [project.entry-points."goldimask.plugins"]
       easy-first = "plugin_method"

Run `python examples/plugin_method.py` for a few steps on a tiny random model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goldimask import Batch, Corruption, Keys, MaskedStep, Reveal, Signal, Signals, Weights, method
from goldimask.presets import PRESETS, Preset
from goldimask.select.base import SELECTORS
from goldimask.weighting import WEIGHERS, loss_scale

LOGP = frozenset({Signal.LOGP})


@dataclass(frozen=True)
class EasyFirst:
    """Reveal the B candidates that the model is most sure of."""

    needs: frozenset[Signal] = LOGP  # asks for a scoring pass with log-probabilities

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.logp is not None
        score = torch.where(c.candidates, s.logp, -torch.inf)
        rank = score.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        budget = torch.where(c.keep > 0, c.budget(), 0)
        return Reveal(c.candidates & (rank < budget[:, None]))


@dataclass(frozen=True)
class OneMinusP:
    """w = 1 - p in the training pass, mean one over the targets."""

    floor: float = 0.0
    needs: frozenset[Signal] = frozenset()  # nothing beyond the training pass itself

    def __call__(
        self, c: Corruption, s: Signals, batch: Batch, supervised: Tensor, logp: Tensor, keys: Keys
    ) -> Weights:
        raw = torch.where(supervised, (1.0 - logp.exp()).clamp_min(self.floor), 0.0)
        mean = raw.sum(1, keepdim=True) / supervised.sum(1, keepdim=True).clamp_min(1)
        return Weights(raw / mean.clamp_min(1e-12), loss_scale(c, batch))


@SELECTORS.register("easy-first")
def easy_first() -> EasyFirst:
    """Reveal what the model is most sure of."""
    return EasyFirst()


@WEIGHERS.register("one-minus-p")
def one_minus_p(floor: float = 0.0) -> OneMinusP:
    """Weigh by 1 - p, mean one; options come from the recipe and are checked by their types."""
    return OneMinusP(floor)


EASY_FIRST = Preset(
    noise={"kind": "overmask"},
    select={"kind": "easy-first"},
    weigh={"kind": "one-minus-p"},
    paper="an example",
    passes=2,
)
PRESETS.add("easy-first", EASY_FIRST, summary="Reveal easy tokens, weigh hard ones.")


def main(steps: int = 20) -> list[float]:
    """Tune the embedded model on one batch of generated problems; returns the losses."""
    from goldimask import load_backbone, load_examples, make_batch

    backbone = load_backbone("tiny")
    examples, _ = load_examples("tiny-sft", backbone, limit=8)
    batch = make_batch(examples, backbone.pad_id)
    step = MaskedStep(method("easy-first"), backbone.scorer)
    optimiser = torch.optim.AdamW(backbone.model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(steps):
        out = step(backbone.model, batch, Keys(seed=0, epoch=epoch))
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        losses.append(float(out.loss.detach()))
        print(f"step {epoch:2d}  loss {losses[-1]:.3f}  targets {int(out.supervised.sum())}")
    return losses


if __name__ == "__main__":
    main()
