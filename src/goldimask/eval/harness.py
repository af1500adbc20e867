"""lm-evaluation-harness on masked diffusion models (extra: `pip install 'goldimask[harness]'`).

Any lm-eval task that generates text can be run on a run or a backbone:

    python -m goldimask.eval.harness --model goldimask --model_args pretrained=RUN --tasks my_task

    from goldimask.eval.harness import run_harness
    results = run_harness(backbone, ["my_task"], include_path="tasks/", length=256)

The first is lm-eval's own command line, with our model registered under its name; releases after
0.4.13 find it by the entry point in pyproject.toml, so that plain `lm_eval` does.

A diffusion model writes on a canvas of fixed length, so `max_gen_toks` is not used; the text is cut
at the first of a request's `until` strings afterwards. Tasks that score likelihoods are refused: a
masked diffusion model has no cheap exact likelihood. lm-eval's own HumanEval and MBPP run generated
code without a sandbox; use `goldimask eval` for those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from goldimask.console import progress
from goldimask.errors import GoldimaskError
from goldimask.records import Scalar

if TYPE_CHECKING:
    from goldimask.backbones import Backbone


class Instance(Protocol):
    """What is read of an lm-eval request."""

    args: tuple[str, Mapping[str, str | Sequence[str] | None]]


NAME = "goldimask"  # of our model in lm-eval
Prompts = list[str] | list[list[int]]  # user turns, or token ids
Answer = Callable[[Prompts], list[str]]


def backbone_answer(
    backbone: Backbone, decoder: str, length: int, batch_size: int, options: Mapping[str, Any]
) -> Answer:
    """Decode all prompts in one running batch, with a bar."""
    from goldimask.decoding import decode_iter, make_settings

    settings = make_settings(decoder, length=length, **options)

    def answer(prompts: Prompts) -> list[str]:
        texts: dict[int, str] = {}
        with progress("decoding", len(prompts)) as advance:
            for i, done in decode_iter(backbone, prompts, settings, batch_size=batch_size):
                texts[i] = done.text
                advance()
        return [texts[i] for i in range(len(prompts))]

    return answer


def cut(text: str, until: Sequence[str]) -> str:
    """The text before the first stop string."""
    ends = [at for stop in until if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def stops(settings: Mapping[str, str | Sequence[str] | None]) -> list[str]:
    """`until` of a request, which may be one string or a list."""
    until = settings.get("until") or []
    return [until] if isinstance(until, str) else list(until)


def plain_ids(backbone: Backbone) -> Callable[[str], list[int]]:
    """Contexts as token ids, without a chat template."""
    return lambda text: list(backbone.tokenizer(text)["input_ids"])


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
    model = _library("goldimask.eval.harness_model").DiffusionLM
    tasks_of = _library("lm_eval.tasks").TaskManager
    manager = tasks_of(include_path=include_path, include_defaults=include_defaults)
    unknown = [t for t in tasks if t not in manager.all_tasks]
    if unknown:
        raise GoldimaskError(f"lm-eval knows no task named {', '.join(unknown)}")
    results = _library("lm_eval").simple_evaluate(
        model=model(answer, None if chat else plain_ids(backbone)),
        tasks=list(tasks),
        task_manager=manager,
        limit=limit,
        log_samples=True,
        bootstrap_iters=0,
    )
    if results is None:
        raise GoldimaskError("lm-eval returned no results (is this rank 0?)")
    return dict(results)


def main() -> None:
    """lm-eval's command line with `--model goldimask`."""
    models = _library("lm_eval.api.registry").model_registry
    _library("lm_eval.models")  # its own models register only into an empty registry
    if NAME not in models:
        models.register(NAME, target="goldimask.eval.harness_model:GoldimaskLM")
    try:
        _library("lm_eval.__main__").cli_evaluate()
    except GoldimaskError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(error.exit_code) from None


def _library(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise GoldimaskError(
            "the lm-evaluation-harness is not installed: pip install 'goldimask[harness]'"
        ) from error


if __name__ == "__main__":
    main()
