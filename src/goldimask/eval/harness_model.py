"""lm-eval's model `goldimask` (entry point group `lm_eval.models`); imports lm-eval at the top.

    --model goldimask --model_args pretrained=RUN,length=256,decoder=threshold,tau=0.9

`pretrained` is a run, a model folder or a known name; `chat=False` passes contexts as they are;
other arguments are the decoder's options. `--batch_size` and `--device` are lm-eval's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lm_eval.api.model import LM  # type: ignore[import-not-found]

from goldimask.errors import GoldimaskError
from goldimask.eval.harness import Answer, Instance, backbone_answer, cut, plain_ids, stops


class DiffusionLM(LM):
    """Generates with `answer`; `encode` makes contexts plain token ids instead of user turns."""

    def __init__(self, answer: Answer, encode: Callable[[str], list[int]] | None = None) -> None:
        super().__init__()
        self.answer, self.encode = answer, encode

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        contexts = [request.args[0] for request in requests]
        prompts = [self.encode(c) for c in contexts] if self.encode else contexts
        settings = [request.args[1] for request in requests]
        texts = self.answer(prompts)
        return [cut(t, stops(s)) for t, s in zip(texts, settings, strict=True)]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        raise GoldimaskError(
            "this lm-eval task scores likelihoods, which masked diffusion models do not give; "
            "choose one with `output_type: generate_until`"
        )

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        return [score for score, _ in self.loglikelihood(requests)]

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        raise GoldimaskError(
            "--apply_chat_template: contexts are user turns of the model's template already "
            "(chat=False in --model_args: as they are); leave the option away"
        )


class GoldimaskLM(DiffusionLM):
    """A model loaded by lm-eval's command line."""

    def __init__(
        self,
        pretrained: str = "",
        decoder: str = "low-confidence",
        length: int = 256,
        batch_size: int | str = 16,
        max_batch_size: int | None = None,
        chat: bool = True,
        device: str | None = None,
        dtype: str | None = None,
        **options: Any,
    ) -> None:
        from goldimask.backbones import load_backbone
        from goldimask.decoding import make_settings
        from goldimask.settings import make

        if not pretrained:
            raise GoldimaskError("--model_args: pretrained=RUN is missing (a run, folder or name)")
        if not str(batch_size).isdecimal():
            raise GoldimaskError(f"--batch_size: expected a whole number, got '{batch_size}'")
        named = {"decoder": decoder, "length": length, **options}
        make(make_settings, named, "--model_args")  # refused before the model is loaded
        if str(device).startswith("cuda") and not torch.cuda.is_available():
            device = None  # lm-eval says cuda:0 wherever nobody said another
        backbone = load_backbone(str(pretrained), device=device, dtype=dtype)
        answer = backbone_answer(backbone, decoder, length, int(batch_size), options)
        super().__init__(answer, None if chat else plain_ids(backbone))
