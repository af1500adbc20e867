"""The tiny tokenizer: one token per word, number, sign and tag, with LLaDA's special tokens.

Text is lower-cased and split by one regular expression; whatever is not in the vocabulary becomes
`<unk>`, so any text can be encoded. Decoding puts single spaces between tokens and takes them away
before closing punctuation and around line breaks, which gives the texts of the tasks back exactly.
The chat template has LLaDA's form (headers, blank line, turn end) and honours
`add_generation_prompt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goldimask.tiny.tasks import TASKS

BOS, EOS, TURN_END = "<|startoftext|>", "<|endoftext|>", "<|eot_id|>"
HEADER, HEADER_END, MASK = "<|start_header_id|>", "<|end_header_id|>", "<|mdm_mask|>"
SPECIALS = (EOS, BOS, TURN_END, HEADER, HEADER_END, MASK)
UNKNOWN = "<unk>"
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
CLOSING = (".", ",", ":", ";", "?")  # no space before these
SIGNS = ("+", "-", "*", "=", "/", "_")
NUMBERS = tuple(str(n) for n in range(100))
PATTERN = r"</?[a-z]+>|\n\n|\n|[0-9]+|[a-z]+|[^\s]"
MAX_LENGTH = 512

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """Every token in the order of its id: specials, tags, signs, numbers, words."""
    words = sorted({word for entry in TASKS for word in entry.load().words})
    roles = ("user", "assistant", "system")
    fixed = (*SPECIALS, UNKNOWN, *TAGS, "\n", "\n\n", *CLOSING, *SIGNS, *NUMBERS, *roles)
    return [*fixed, *(word for word in words if word not in fixed)]


def build_tokenizer() -> Any:
    """The tokenizer as transformers knows it."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    ids = {token: i for i, token in enumerate(vocabulary())}
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
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        unk_token=UNKNOWN,
        mask_token=MASK,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        padding_side="right",
    )


def save_tokenizer(folder: Path | str) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template."""
    build_tokenizer().save_pretrained(str(folder))
