"""What the rest of the library knows about a model: one record, whatever the family.

Prompts and responses are rendered and tokenised separately and concatenated, so that the boundary
is exact (D12, docs/decisions.md); the prompt ends with the assistant's header, and nothing here
resizes an embedding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.core_model_loading import WeightRenaming

from goldimask.backbones.scoring import TokenScorer
from goldimask.backbones.template import render
from goldimask.errors import GoldimaskError

Messages = Sequence[Mapping[str, str]]
SPECIAL_TEXT = re.compile(r"<\|[^|\s]+\|>")
SAMPLE = (
    {"role": "user", "content": "1"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "3"},
)


def unchanged(value: Any) -> Any:
    """The translation of a family that is published under transformers' own names."""
    return value


def path(name: str) -> str:
    """A pattern for the beginning of a path, with the number of its block as a group."""
    return "^" + re.escape(name).replace(r"\{\}", r"(\d+)")


def renamed(name: str, table: Iterable[tuple[str, str]]) -> str:
    """The path with its beginning replaced, which PEFT may have put something before."""
    start, bare = re.fullmatch(r"((?:base_model\.model\.)?)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    for old, new in table:
        if match := re.match(path(old) + r"(?=\.|$)", bare):
            return start + new.format(*match.groups()) + bare[match.end() :]
    return name


@dataclass(frozen=True)
class Family:
    """Everything that differs between architectures; each family's file ends with its record.

    "Published" names are those of the checkpoints on the Hub, "native" ones those of transformers.
    """

    name: str
    config: type[PreTrainedConfig]  # knows `mask_token_id` and `logit_shift`
    model: type[PreTrainedModel]
    turn_end: str  # the token that closes a turn
    tokenizer: str  # the class that the published tokenizer files are for
    hub_config: Callable[[Any], dict[str, Any]]  # a config -> the published config.json
    read: Callable[[dict[str, Any]], dict[str, Any]] = unchanged  # published fields -> the config's
    names: Mapping[str, str] = field(default_factory=dict)  # published -> native paths, {} a block
    layers: Mapping[str, str] = field(default_factory=dict)  # published -> native, linear layers
    hub_targets: Callable[[Sequence[str]], list[str] | str] | None = None  # of an adapter
    split: Callable[[dict[str, Tensor]], dict[str, Tensor]] = unchanged  # native -> published
    template_ids: Mapping[str, int] = field(default_factory=dict)  # where a base lacks them

    def to_native(self, name: str) -> str:
        """A published tensor or module path -> transformers'; other names pass through."""
        return renamed(name, self.names.items())

    def to_hub(self, name: str) -> str:
        """The way back."""
        return renamed(name, ((ours, theirs) for theirs, ours in self.names.items()))

    def renamings(self) -> list[WeightRenaming]:
        """`to_native` for transformers' own loader."""
        return [WeightRenaming(path(a), b.replace("{}", r"\1")) for a, b in self.names.items()]


@dataclass(frozen=True, eq=False)
class Backbone:
    """A loaded model with everything that depends on its family."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerFast
    name: str
    family: Family
    mask_id: int
    pad_id: int
    turn_end_id: int
    special_ids: frozenset[int]  # never supervised, never shown
    shift: bool  # raw row i predicts token i + 1
    layers: int
    max_length: int  # positions of the config
    usable_length: int  # what the model card promises, where that is less
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
        return self._template(turns)

    @cached_property
    def _template(self) -> Callable[[Messages], str]:
        """The chat template, whose special tokens must be tokens and not text."""
        template = getattr(self.tokenizer, "chat_template", None)
        if not template:
            raise GoldimaskError(
                f"{self.name}: the tokenizer has no chat template; add chat_template.jinja to "
                f"{self.path or 'its folder'}"
            )
        options: dict[str, Any] = (
            {"enable_thinking": False} if "enable_thinking" in str(template) else {}
        )

        def write(turns: Messages) -> str:
            try:
                return render(
                    str(self.tokenizer.get_chat_template()),
                    messages=[dict(turn) for turn in turns],
                    tools=None,
                    documents=None,
                    add_generation_prompt=True,
                    **options,
                    **self.tokenizer.special_tokens_map,
                )
            except (GoldimaskError, ValueError) as error:
                raise GoldimaskError(f"{self.path or self.name}: {error}") from error

        written = dict.fromkeys(SPECIAL_TEXT.findall(write(SAMPLE)))
        if broken := [token for token in written if len(self._encode(token)) != 1]:
            ids = self.family.template_ids
            known = [f"{ids[t]} {t}" for t in broken if t in ids]
            raise GoldimaskError(
                f"{self.path or self.name}: the chat template writes {', '.join(broken)}, which "
                "the tokenizer cuts into characters; add to added_tokens_decoder of "
                f"tokenizer_config.json, as special: {', '.join(known or broken)}"
            )
        return write

    def response_ids(self, text: str, turn_end: bool = True) -> list[int]:
        """Tokens of a response and the turn end; its text never becomes a special token."""
        ids = self._encode(text, split_special_tokens=True)
        return [*ids, self.turn_end_id] if turn_end else ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids that are not special."""
        kept = [i for i in map(int, ids) if i not in self.special_ids]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True))

    def _encode(self, text: str, split_special_tokens: bool = False) -> list[int]:
        # the template writes BOS itself; the tokenizer must not add another
        found = self.tokenizer(
            text, add_special_tokens=False, split_special_tokens=split_special_tokens
        )
        return list(found["input_ids"])
