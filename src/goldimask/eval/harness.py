"""lm-evaluation-harness on masked diffusion models (extra: `pip install 'goldimask[harness]'`).

Any lm-eval task that generates text can be run on a backbone:

    from goldimask.eval.harness import run_harness
    results = run_harness(backbone, ["my_task"], include_path="tasks/", length=256)

A diffusion model writes on a canvas of fixed length, so `max_gen_toks` is not used; the text is cut
at the first of a request's `until` strings afterwards. Tasks that score likelihoods are refused: a
masked diffusion model has no cheap exact likelihood. lm-eval's own HumanEval and MBPP run generated
code without a sandbox; use `goldimask eval` for those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from goldimask.errors import GoldimaskError
from goldimask.records import Scalar

if TYPE_CHECKING:
    from lm_eval.api.model import LM  # type: ignore[import-not-found]

    from goldimask.backbones import Backbone


class Instance(Protocol):
    """What is read of an lm-eval request."""

    args: tuple[str, Mapping[str, str | Sequence[str] | None]]


Prompts = list[str] | list[list[int]]  # user turns, or token ids
Answer = Callable[[Prompts], list[str]]


def backbone_answer(
    backbone: Backbone, decoder: str, length: int, batch_size: int, options: Mapping[str, Any]
) -> Answer:
    """Decode through `goldimask.decode`."""
    from goldimask.decoding import decode

    def answer(prompts: Prompts) -> list[str]:
        done = decode(
            backbone, prompts, decoder=decoder, length=length, batch_size=batch_size, **options
        )
        return [d.text for d in done]

    return answer


def cut(text: str, until: Sequence[str]) -> str:
    """The text before the first stop string."""
    ends = [at for stop in until if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def stops(settings: Mapping[str, str | Sequence[str] | None]) -> list[str]:
    """`until` of a request, which may be one string or a list."""
    until = settings.get("until") or []
    return [until] if isinstance(until, str) else list(until)


def make_lm(answer: Answer, encode: Callable[[str], list[int]] | None = None) -> LM:
    """An lm-eval model; `encode` makes contexts plain token ids instead of user turns."""
    base: type[LM] = _library("lm_eval.api.model").LM

    class DiffusionLM(base):
        """The library asks for a subclass; everything it does is in `answer`."""

        def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
            contexts = [request.args[0] for request in requests]
            prompts = [encode(c) for c in contexts] if encode else contexts
            settings = [request.args[1] for request in requests]
            texts = answer(prompts)
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

    return DiffusionLM()


def run_harness(
    backbone: Backbone,
    tasks: Sequence[str],
    *,
    include_path: str | None = None,
    include_defaults: bool = True,
    decoder: str = "low-confidence",
    length: int = 256,
    batch_size: int = 16,
    limit: int | None = None,
    chat: bool = True,
    answer: Answer | None = None,
    **options: Scalar,
) -> dict[str, Any]:
    """Results as lm-eval gives them, samples included; `goldimask score` reads the samples.

    `include_path` is a folder of task files, and `include_defaults=False` spares reading the
    harness's own; `chat=False` passes contexts as they are instead of as
    user turns (few-shot prompts for base models); other options go to the decoder.
    """
    answer = answer or backbone_answer(backbone, decoder, length, batch_size, options)
    encode = None if chat else lambda text: list(backbone.tokenizer(text)["input_ids"])
    tasks_of = _library("lm_eval.tasks").TaskManager
    manager = tasks_of(include_path=include_path, include_defaults=include_defaults)
    unknown = [t for t in tasks if t not in manager.all_tasks]
    if unknown:
        raise GoldimaskError(f"lm-eval knows no task named {', '.join(unknown)}")
    results = _library("lm_eval").simple_evaluate(
        model=make_lm(answer, encode),
        tasks=list(tasks),
        task_manager=manager,
        limit=limit,
        log_samples=True,
        bootstrap_iters=0,
    )
    if results is None:
        raise GoldimaskError("lm-eval returned no results (is this rank 0?)")
    return dict(results)


def _library(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise GoldimaskError(
            "the lm-evaluation-harness is not installed: pip install 'goldimask[harness]'"
        ) from error
