"""Measurement studies: what the models do in fixed states, not how well they score."""
