"""The same step under Accelerate: `accelerate launch examples/accelerate_loop.py`.

The noise of an example comes from (seed, epoch, example id), so every process draws its own and the
number of processes changes nothing.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import goldimask
from goldimask.data.batches import Collator, EpochDataset, EpochSampler, to_batch


def main(model: str, preset: str, steps: int, seed: int, batch_size: int, cpu: bool) -> list[float]:
    accelerator = Accelerator(cpu=cpu)
    backbone = goldimask.load_backbone(model)
    examples, _ = goldimask.load_examples("tiny-sft", backbone, limit=200)
    sampler = EpochSampler([len(e) for e in examples], batch_size, seed)
    each = batch_size // accelerator.num_processes
    loader = DataLoader(
        EpochDataset(examples), each, sampler=sampler, collate_fn=Collator(backbone.pad_id)
    )
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=3e-4, weight_decay=0.0)
    network, optimizer, loader = accelerator.prepare(backbone.model, optimizer, loader)
    step = goldimask.MaskedStep(goldimask.method(preset), backbone.scorer)
    network.train()
    losses: list[float] = []
    while len(losses) < steps:
        for inputs in loader:
            batch, epoch = to_batch(inputs)
            out = step(network, batch, goldimask.Keys(seed, epoch))
            accelerator.backward(out.loss)
            accelerator.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(accelerator.reduce(out.loss.detach(), "mean")))
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
    parser.add_argument("--cpu", action="store_true")
    for number, loss in enumerate(main(**vars(parser.parse_args())), 1):
        print(f"step {number:3d}  loss {loss:.4f}")
