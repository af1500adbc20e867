"""A row as text: which columns hold the prompt and the response.

Shapes, in this order of precedence:

    messages                         a list of {role, content}
    conversations                    ShareGPT: a list of {from, value}, or of {role, content}
    prompt + completion | response   each a string, or a list of messages
    instruction (+ input) + output   alpaca: instruction, an empty line, input
    question + answer

A column `system` beside any of them is the system turn. Other names are given these ones by
`data.columns`: `{prompt: title, response: body}`.

Of a conversation the last assistant turn is the response and everything before it the prompt. With
`turns: all` every assistant turn is the response of an example of its own, whose prompt is what was
said before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goldimask.data.rows import Row
from goldimask.errors import GoldimaskError, nearest, short
from goldimask.files import encodable

COLUMNS = (
    "messages; conversations; prompt + completion; prompt + response; "
    "instruction + output; question + answer"
)
ASKED = {  # column of the prompt -> columns of the response
    "prompt": ("completion", "response"),
    "instruction": ("output", "response"),
    "question": ("answer",),
}
RENAMED = ("messages", "prompt", "response", "system")  # what `data.columns` can name
SPEAKERS = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
Message = dict[str, str]
Turns = Literal["last", "all"]


@dataclass(frozen=True)
class Pair:
    """One example as text, with the place it came from."""

    prompt: list[Message]
    response: str
    where: str


def to_pair(row: Row) -> Pair:
    """Prompt and response of a row; of a conversation, its last assistant turn."""
    return to_pairs(row)[0]


def to_pairs(row: Row, turns: Turns = "last") -> list[Pair]:
    """The examples of a row: one, or one per assistant turn."""
    values, where = columns_of(row), row.where
    messages = conversation(values, where)
    if messages is None:
        prompt, response = _halves(values, where)
        if response is None:
            key = next(k for k in ASKED if values.get(k) is not None)
            wanted = " or ".join(f"'{k}'" for k in ASKED[key])
            raise GoldimaskError(f"{where}: the row has '{key}' but no response; add {wanted}")
        return [_checked(prompt, response, where)]
    said = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if turns == "last":
        if not said or said[-1] != len(messages) - 1:
            raise GoldimaskError(
                f"{where}: messages must end with an assistant turn, the response "
                "(or set data.turns=all)"
            )
        said = said[-1:]
    else:  # a greeting answers nothing
        said = [i for i in said if any(m["role"] == "user" for m in messages[:i])]
    if not said:
        raise GoldimaskError(f"{where}: no assistant turn follows a user's")
    return [_checked(messages[:i], messages[i]["content"], where) for i in said]


def to_prompt(row: Row) -> list[Message]:
    """What a row asks; the response, if it has one, is left out."""
    values, where = columns_of(row), row.where
    messages = conversation(values, where)
    if messages is None:
        messages = _halves(values, where)[0]
    elif messages and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    if not messages:
        raise GoldimaskError(f"{where}: the prompt is empty")
    return messages


def asked(row: Row) -> str | list[Message]:
    """`to_prompt`, where a single user turn is its text."""
    turns = to_prompt(row)
    alone = len(turns) == 1 and turns[0]["role"] == "user"
    return turns[0]["content"] if alone else turns


def shape_of(values: Any) -> str | None:
    """What a row looks like, in a word or two."""
    if not isinstance(values, Mapping):
        return None
    for key in ("messages", "conversations"):
        if values.get(key) is not None:
            return key
    for key, answers in ASKED.items():
        if values.get(key) is not None:
            found = next((k for k in answers if values.get(k) is not None), None)
            return f"{key} + {found}" if found else None
    return None


def columns_of(row: Row) -> Mapping[str, Any]:
    """The row in the names above: formatted by its corpus, or renamed."""
    values = row.values
    if row.format is not None:
        try:
            values = row.format(values)
        except GoldimaskError as error:
            raise GoldimaskError(f"{row.where}: {error}") from error
    if not isinstance(values, Mapping):
        raise GoldimaskError(f"{row.where}: a row is an object with columns {COLUMNS}")
    return values


def renaming(columns: Mapping[str, str]) -> Callable[[Any], dict[str, Any]]:
    """`data.columns` as the format of a row."""
    for key in columns:
        if key not in RENAMED:
            raise GoldimaskError(f"data.columns.{key}: unknown; {nearest(key, RENAMED)}")
    if not ("messages" in columns or {"prompt", "response"} <= set(columns)):
        raise GoldimaskError(
            "data.columns: say which columns are 'prompt' and 'response', or which is 'messages'"
        )

    def format(values: Any) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise GoldimaskError("a row is an object with columns")
        for key, name in columns.items():
            if values.get(name) is None and key != "system":
                raise GoldimaskError(
                    f"data.columns.{key}: no column '{name}'; {nearest(name, map(str, values))}"
                )
        return {key: values.get(name) for key, name in columns.items()}

    return format


# --- parts ---------------------------------------------------------------------------------------


def conversation(values: Mapping[str, Any], where: str) -> list[Message] | None:
    """The turns of a row that has them."""
    key = next((k for k in ("messages", "conversations") if values.get(k) is not None), None)
    if key is None:
        return None
    found = _messages(values[key], f"{where}: {key}")
    return found if found and found[0]["role"] == "system" else _system(values, where) + found


def _halves(values: Mapping[str, Any], where: str) -> tuple[list[Message], str | None]:
    """Prompt and response, where there is one."""
    key = next((k for k in ASKED if values.get(k) is not None), None)
    if key is None:
        raise GoldimaskError(
            f"{where}: no known columns in {short(sorted(map(str, values)))}; use one of: "
            f"{COLUMNS}, or name yours with data.columns='{{prompt: ..., response: ...}}'"
        )
    prompt = values[key]
    if key == "instruction" and values.get("input"):
        prompt = f"{_text(prompt, where, key)}\n\n{_text(values['input'], where, 'input')}"
    turns = _turns(prompt, f"{where}: {key}")
    if not turns or turns[0]["role"] != "system":
        turns = _system(values, where) + turns
    answer = next((k for k in ASKED[key] if values.get(k) is not None), None)
    return turns, None if answer is None else _text(values[answer], where, answer)


def _system(values: Mapping[str, Any], where: str) -> list[Message]:
    given = values.get("system")
    text = _text(given, where, "system") if given else ""
    return [{"role": "system", "content": text}] if text.strip() else []


def _turns(value: Any, where: str) -> list[Message]:
    if (text := _plain(value)) is not None:
        return [{"role": "user", "content": text}]
    return _messages(value, where)


def _text(value: Any, where: str, key: str) -> str:
    if (text := _plain(value)) is not None:
        return text
    messages = _messages(value, f"{where}: {key}")
    if len(messages) != 1:
        raise GoldimaskError(f"{where}: {key} must be a string or a single message")
    return messages[0]["content"]


def _plain(value: Any) -> str | None:
    """A string, or a number as one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def _messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise GoldimaskError(f"{where}: must be a list of {{role, content}} objects")
    return [_message(m, f"{where}[{i}]") for i, m in enumerate(value)]


def _message(value: Any, where: str) -> Message:
    if isinstance(value, Mapping) and "from" in value:  # ShareGPT's
        said = value["from"]
        value = {"role": SPEAKERS.get(str(said), said), "content": value.get("value")}
        if value["role"] not in ("system", "user", "assistant"):
            known = nearest(str(said), (*SPEAKERS, "system", "user", "assistant"))
            raise GoldimaskError(f"{where}: unknown speaker '{short(said)}'; {known}")
    good = isinstance(value, Mapping) and isinstance(value.get("role"), str)
    if not good or not isinstance(value.get("content"), str):
        raise GoldimaskError(f"{where}: must be an object with string 'role' and 'content'")
    return {"role": value["role"], "content": value["content"]}


def _checked(prompt: list[Message], response: str, where: str) -> Pair:
    if not prompt:
        raise GoldimaskError(f"{where}: the prompt is empty")
    if not response.strip():
        raise GoldimaskError(f"{where}: the response is empty; nothing could be supervised")
    if not all(map(encodable, (response, *(m[k] for m in prompt for k in ("role", "content"))))):
        raise GoldimaskError(f"{where}: a text holds half a character (a lone surrogate)")
    return Pair(prompt, response, where)
