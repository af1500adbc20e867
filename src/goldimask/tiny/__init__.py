"""The tiny world: generated problems, corpora, a tokenizer and small pretrained models."""
