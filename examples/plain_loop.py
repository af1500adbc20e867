"""GoldiMask in a plain torch loop: fifteen lines that you can paste into your own.

python examples/plain_loop.py --steps 20
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader

import goldimask
from goldimask.data.batches import Collator, EpochDataset, EpochSampler, to_batch


def main(model: str, preset: str, steps: int, seed: int, batch_size: int) -> list[float]:
    backbone = goldimask.load_backbone(model)
    examples, _ = goldimask.load_examples("tiny-sft", backbone, limit=200)
    sampler = EpochSampler([len(e) for e in examples], batch_size, seed)
    loader = DataLoader(
        EpochDataset(examples), batch_size, sampler=sampler, collate_fn=Collator(backbone.pad_id)
    )
    step = goldimask.MaskedStep(goldimask.method(preset), backbone.scorer)
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=3e-4, weight_decay=0.0)
    backbone.model.train()
    losses: list[float] = []
    while len(losses) < steps:
        for inputs in loader:
            batch, epoch = to_batch(inputs)
            out = step(backbone.model, batch, goldimask.Keys(seed, epoch))
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(backbone.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(out.loss.item())
            if len(losses) == steps:
                break
        sampler.set_epoch(sampler.epoch + 1)
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--preset", default="goldimask-d")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--batch-size", type=int, default=8)
    for number, loss in enumerate(main(**vars(parser.parse_args())), 1):
        print(f"step {number:3d}  loss {loss:.4f}")
