"""The tiny tokenizer: one token per word, number, sign and tag.

Text is lower-cased and split by one regular expression; whatever is not in the vocabulary becomes
`<unk>`, so any text can be encoded. Decoding puts single spaces between tokens and takes them away
before closing punctuation and around line breaks, which gives the texts of the tasks back exactly.
The special tokens and the chat template are LLaDA's or Dream's; the other ids are the same in
both. The template honours `add_generation_prompt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.identifiers import IDENTIFIERS, OPENING

EOS = "<|endoftext|>"


@dataclass(frozen=True)
class Dialect:
    """The special tokens and the chat template of a family, in the order of their ids."""

    bos: str
    turn_end: str
    header: str
    header_end: str  # Dream has none; the word keeps its place
    mask: str
    template: str

    def specials(self) -> tuple[str, ...]:
        return EOS, self.bos, self.turn_end, self.header, self.header_end, self.mask


DIALECTS = {
    "llada": Dialect(
        *("<|startoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
        "<|mdm_mask|>",
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
        "{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    "dream": Dialect(
        *("<|beginoftext|>", "<|im_end|>", "<|im_start|>", "<|box_start|>"),
        "<|mask|>",
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{{ message['content'] | trim }}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ),
}
UNKNOWN = "<unk>"
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
CLOSING = (".", ",", ":", ";", "?")  # no space before these
SIGNS = ("+", "-", "*", "=", "/", "_")
NUMBERS = tuple(str(n) for n in range(100))
PATTERN = r"</?[a-z]+>|\n\n|\n|[0-9]+|[a-z]+|[^\s]"
MAX_LENGTH = 512


def vocabulary(family: str = "llada") -> list[str]:
    """Every token in the order of its id: specials, tags, signs, numbers, words."""
    named = {word for problems in PROBLEM_FAMILIES.values() for word in problems.words}
    words = sorted({*named, *IDENTIFIERS, OPENING})
    roles = ("user", "assistant", "system")
    fixed = (
        *DIALECTS[family].specials(),
        UNKNOWN,
        *TAGS,
        "\n",
        "\n\n",
        *CLOSING,
        *SIGNS,
        *NUMBERS,
        *roles,
    )
    return [*fixed, *(word for word in words if word not in fixed)]


def build_tokenizer(family: str = "llada") -> Any:
    """The tokenizer as transformers knows it."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    dialect = DIALECTS[family]
    ids = {token: i for i, token in enumerate(vocabulary(family))}
    tokenizer = Tokenizer(WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="removed", invert=True)
    glue = [decoders.Replace(f" {sign}", sign) for sign in (*CLOSING, "\n")]
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix="##", cleanup=False),
            decoders.Fuse(),
            *glue,
            decoders.Replace("\n ", "\n"),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in dialect.specials()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=dialect.bos,
        eos_token=EOS,
        pad_token=EOS,
        unk_token=UNKNOWN,
        mask_token=dialect.mask,
        chat_template=dialect.template,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        padding_side="right",
    )
