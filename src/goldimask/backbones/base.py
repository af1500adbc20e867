"""What the rest of the library knows about a model: one record, whatever the family.

Prompts and responses are rendered and tokenised separately and concatenated, so that the boundary
is exact (D12); the prompt ends with the assistant's header, and nothing here resizes an
embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from torch import nn

from goldimask.backbones.scoring import TokenScorer
from goldimask.errors import GoldimaskError
from goldimask.registry import Registry

Family = Literal["llada", "dream"]
Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class Backbone:
    """A loaded model with everything that depends on its family."""

    model: nn.Module
    tokenizer: Any
    name: str
    family: Family
    mask_id: int
    pad_id: int
    turn_end_id: int
    special_ids: frozenset[int]  # never supervised, never shown
    shift: bool  # raw row i predicts token i + 1
    layers: int
    max_length: int
    scorer: TokenScorer
    path: str = ""  # the folder the weights came from; empty when made from scratch

    def prompt_ids(self, messages: Messages | str) -> list[int]:
        """Tokens of a conversation up to and including the assistant's header."""
        return self._encode(self.render(messages))

    def render(self, messages: Messages | str) -> str:
        """The prompt as text; a string stands for one user turn."""
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        if not turns:
            raise GoldimaskError("prompt: a conversation needs at least one message")
        if turns[-1]["role"] == "assistant":
            raise GoldimaskError(
                "prompt: the last message is the assistant's; pass it to response_ids instead"
            )
        if not getattr(self.tokenizer, "chat_template", None):
            raise GoldimaskError(
                f"{self.name}: the tokenizer has no chat template; add chat_template.jinja to "
                f"{self.path or 'its folder'}"
            )
        return self.tokenizer.apply_chat_template(
            [dict(turn) for turn in turns], tokenize=False, add_generation_prompt=True
        )

    def response_ids(self, text: str, turn_end: bool = True) -> list[int]:
        """Tokens of a response and the turn end; its text never becomes a special token."""
        ids = self._encode(text, split_special_tokens=True)
        return [*ids, self.turn_end_id] if turn_end else ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids that are not special."""
        kept = [i for i in map(int, ids) if i not in self.special_ids]
        return self.tokenizer.decode(kept, skip_special_tokens=True)

    def _encode(self, text: str, **options: Any) -> list[int]:
        # the template writes BOS itself; the tokenizer must not add another
        return list(self.tokenizer(text, add_special_tokens=False, **options)["input_ids"])


@dataclass(frozen=True)
class Source:
    """Where a named backbone is found: on the Hub, in the package, or in a clone of its code."""

    hub: str = ""
    asset: str = ""  # a folder inside the package
    clone: str = ""  # a folder of the repository that the wheel leaves out

    def folder(self) -> Path | None:
        """The folder on this machine, if that is where it is."""
        package = Path(str(files("goldimask")))
        if self.clone:
            return package.parents[1] / self.clone  # the package is in the clone's src/
        return package / self.asset if self.asset else None


BACKBONES: Registry[Source] = Registry("backbone")
BACKBONES.add(
    "tiny", Source(asset="assets/tiny/model"), summary="Embedded model for CPU, LLaDA family"
)
BACKBONES.add(
    "tiny-b", Source(clone="models/tiny-b/model"), summary="The same from another seed; in a clone"
)
BACKBONES.add(
    "tiny-dream",
    Source(clone="models/tiny-dream/model"),
    summary="The same in Dream's layout; in a clone",
)
BACKBONES.add("llada-8b-instruct", Source(hub="GSAI-ML/LLaDA-8B-Instruct"), summary="LLaDA, 8B")
BACKBONES.add("llada-1.5", Source(hub="GSAI-ML/LLaDA-1.5"), summary="LLaDA 1.5, 8B")
BACKBONES.add(
    "dream-7b-instruct", Source(hub="Dream-org/Dream-v0-Instruct-7B"), summary="Dream, 7B"
)
