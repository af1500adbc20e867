"""From rows to token ids to batches."""
