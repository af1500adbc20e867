"""The word-level tokenizer: lossless on the tasks, harmless on anything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.identifiers import IDENTIFIERS, OPENING
from goldimask.tiny.problem import Split
from pretraining.tokenizer import (
    DIALECTS,
    EOS,
    TAGS,
    build_tokenizer,
    vocabulary,
)

LLADA = DIALECTS["llada"]
TURN_END = LLADA.turn_end


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("split", [Split.PRETRAIN, Split.SFT, Split.TEST])
@pytest.mark.parametrize("name", list(PROBLEM_FAMILIES))
def test_task_texts_come_back_exactly(tokenizer, name, split):
    for i in range(60):
        problem = PROBLEM_FAMILIES[name].problem(4, i, split)
        for text in (problem.prompt, problem.response):
            ids = encode(tokenizer, text)
            assert tokenizer.unk_token_id not in ids, text
            assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", list(PROBLEM_FAMILIES))
def test_lengths_of_the_fine_tuning_distribution(tokenizer, name):
    problems = PROBLEM_FAMILIES[name].problems(100, 1)
    responses = [len(encode(tokenizer, p.response)) for p in problems]
    assert min(responses) >= 60 and max(responses) <= 127  # with its turn end within 128
    assert max(len(encode(tokenizer, p.prompt)) for p in problems) <= 65


def test_vocabulary_is_compact_and_ordered(tokenizer):
    words = vocabulary()
    assert len(words) == len(set(words)) == len(tokenizer) < 320
    assert words[:6] == list(LLADA.specials())
    assert [tokenizer.convert_tokens_to_ids(w) for w in words] == list(range(len(words)))


def test_special_tokens(tokenizer):
    assert tokenizer.eos_token == tokenizer.pad_token == EOS and tokenizer.mask_token == LLADA.mask
    for tag in TAGS:  # tags are words: one token, supervised, shown
        assert len(encode(tokenizer, tag)) == 1
        assert encode(tokenizer, tag)[0] not in tokenizer.all_special_ids


def test_both_families_differ_in_special_tokens_alone(tokenizer):
    dream = build_tokenizer("dream")
    assert vocabulary("dream")[6:] == vocabulary()[6:] and len(dream) == len(tokenizer)
    assert dream.mask_token == "<|mask|>" and dream.pad_token == EOS
    text = dream.apply_chat_template(
        [{"role": "user", "content": "and 8?"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nand 8?<|im_end|>\n<|im_start|>assistant\n"
    assert dream.unk_token_id not in encode(dream, text)


def test_identifiers_are_words_of_no_problem(tokenizer):
    words = {w for family in PROBLEM_FAMILIES.values() for w in family.words}
    assert len(IDENTIFIERS) >= 60 and not words & {*IDENTIFIERS, OPENING}
    assert tokenizer.unk_token_id not in encode(tokenizer, " ".join((OPENING, *IDENTIFIERS)))


def test_chat_template(tokenizer):
    turns = [
        {"role": "user", "content": " start 7. "},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "and 8?"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    assert text == (
        f"<|startoftext|>{head.format('user')}start 7.{TURN_END}{head.format('assistant')}ok"
        f"{TURN_END}{head.format('user')}and 8?{TURN_END}{head.format('assistant')}"
    )
    without = tokenizer.apply_chat_template(turns[:1], tokenize=False)
    assert without.endswith(TURN_END)
    ids = encode(tokenizer, text)
    assert ids.count(tokenizer.bos_token_id) == 1


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_can_be_encoded(text):
    tokenizer = _shared()
    ids = encode(tokenizer, text)
    assert all(0 <= i < len(tokenizer) for i in ids)
    again = encode(tokenizer, tokenizer.decode(ids))
    assert tokenizer.decode(again) == tokenizer.decode(ids)


def test_unknown_words_become_unk(tokenizer):
    ids = encode(tokenizer, "Start 7 zebra 12345 \U0001f600")
    assert [tokenizer.convert_ids_to_tokens(i) for i in ids] == [
        "start",
        "7",
        *["<unk>"] * 3,
    ]


def test_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    from transformers import PreTrainedTokenizerFast

    build_tokenizer().save_pretrained(str(tmp_path))
    loaded = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    text = PROBLEM_FAMILIES["story"].problem(0, 0).response
    assert encode(loaded, text) == encode(tokenizer, text)
    assert loaded.decode(encode(loaded, text)) == text
    assert loaded.chat_template == tokenizer.chat_template


_cache: list = []


def _shared():
    if not _cache:
        _cache.append(build_tokenizer())
    return _cache[0]
