"""Pretraining of the tiny bases from nothing; run by `tools/pretrain.py`, not installed."""
