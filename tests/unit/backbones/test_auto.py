"""transformers' Auto classes load our families once `goldimask.backbones` is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("first", ["goldimask.backbones", "transformers"])
def test_auto_classes_in_either_order(small_model: Path, first: str) -> None:
    second = "transformers" if first == "goldimask.backbones" else "goldimask.backbones"
    code = (
        f"import {first}, {second}\n"
        "from transformers import AutoModelForCausalLM\n"
        f"model = AutoModelForCausalLM.from_pretrained({str(small_model)!r})\n"
        "assert type(model).__name__ == 'LLaDAForDiffusion' and not model.config.is_causal\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
