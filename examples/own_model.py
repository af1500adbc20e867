"""GoldiMask on a masked language model of your own: here a stock ModernBERT, built small.

A method sees a model through a scorer: hide the chosen tokens, run one forward pass, hand back
log p, and the attention of one block if the method asks for it. Nothing else is needed to train.

python examples/own_model.py
"""

from __future__ import annotations

import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM

import goldimask
from goldimask.backbones.attention import SDPA, AttentionTap
from goldimask.backbones.scoring import block_index, candidate_rows
from goldimask.data.batches import make_batch
from goldimask.types import Batch, Signal, Signals


class OwnScorer:
    def __init__(self, mask_id: int, layers: int) -> None:
        self.mask_id, self.layers = mask_id, layers

    def __call__(self, model, batch: Batch, hidden, want=frozenset(), layer="last", where=None):
        rows = candidate_rows(hidden) if Signal.ATTENTION in want else None
        block = block_index(layer, self.layers)
        tap = AttentionTap(block, rows, batch.valid, Signal.RECEIVED in want)
        ids = batch.ids.masked_fill(hidden, self.mask_id)
        out = model(ids, attention_mask=batch.valid, tap=tap)  # the blocks get the tap
        logs = out.logits.float().log_softmax(-1)  # row i predicts token i
        logp = logs.gather(2, batch.ids[..., None]).squeeze(2) * hidden
        entropy = -(logs.exp() * logs).sum(-1) * hidden
        return Signals(logp, entropy, tap.attention, rows, tap.received)


def main(steps: int = 20, preset: str = "goldimask-d", seed: int = 42) -> list[float]:
    words = goldimask.load_backbone("tiny")  # for its tokenizer and chat template alone
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    sizes |= {"num_hidden_layers": 2, "global_attn_every_n_layers": 1}  # full attention
    sizes |= {"vocab_size": len(words.tokenizer), "pad_token_id": words.pad_id}
    torch.manual_seed(seed)
    model = ModernBertForMaskedLM(ModernBertConfig(**sizes)).train()
    model.config._attn_implementation = SDPA  # the stock kernel, with our tap
    step = goldimask.MaskedStep(goldimask.method(preset), OwnScorer(words.mask_id, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batch = make_batch(goldimask.load_examples("tiny-sft", words, limit=8)[0], words.pad_id)
    losses = []
    for epoch in range(steps):
        out = step(model, batch, goldimask.Keys(seed, epoch))
        out.loss.backward()
        optimizer.step()
        model.zero_grad()
        losses.append(out.loss.item())
    return losses


if __name__ == "__main__":
    print(*main(), sep="\n")
