"""The training loop: a thin transformers Trainer over the shared step."""
