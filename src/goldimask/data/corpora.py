"""Named corpora and their formatting (LIFT's public protocol; baselines 1.5).

    user        FORMAT + two newlines + question         (the instruction sits in the user turn)
    assistant   <reasoning>trace</reasoning>
                <answer>answer</answer>                  (no newlines just inside the tags)

    corpus        trace                              answer
    s1k           thinking_trajectories[0]           attempt
    s1k-1.1       deepseek_thinking_trajectory       deepseek_attempt
    gsm8k         answer before ####                 answer after ####
    lift-sft-12k  thinking_trajectories[0] or none   sol; element 0 where it is a list
    kodcode       first gpt turn, think tags renamed r1_solution or solution

A corpus is fetched from the Hub with `datasets`, or read from `data.path`: a file or folder with
the same columns.

Deviations from the released code: a list-valued `sol` gives its first element instead of its
brackets; everything is a plain function of one row, so a bad row is named and can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.registry import Registry

Row = Mapping[str, Any]

FORMAT = (
    "\nRespond in the following format:\n"
    "<reasoning>\nYour reasoning here\n</reasoning>\n"
    "<answer>\n...\n</answer>\n"
)


@dataclass(frozen=True)
class Corpus:
    """Where the rows are, and how one becomes a prompt and a response."""

    hub: str
    format: Callable[[Row], dict[str, Any]]
    subset: str | None = None
    split: str = "train"


# a corpus, or a function that returns ready rows (the tiny world's: `goldimask.tiny.corpora`)
CORPORA: Registry[Corpus | Callable[[], list[dict[str, Any]]]] = Registry("corpus")


def tagged(question: str, trace: str, answer: str) -> dict[str, Any]:
    """A row in the tags' format."""
    return {
        "prompt": f"{FORMAT}\n\n{question}",
        "response": f"<reasoning>{trace}</reasoning>\n<answer>{answer}</answer>",
    }


def column(row: Row, name: str) -> Any:
    """A column that must be there."""
    if row.get(name) is None:
        raise GoldimaskError(f"column '{name}' is missing; found: {', '.join(sorted(row))}")
    return row[name]


def text(row: Row, name: str) -> str:
    """A column as text; of a list, its first element."""
    return str(first(column(row, name), name))


def first(value: Any, name: str) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise GoldimaskError(f"column '{name}' is an empty list")
        return value[0]
    return value


def s1k(row: Row) -> dict[str, Any]:
    return tagged(text(row, "question"), text(row, "thinking_trajectories"), text(row, "attempt"))


def s1k_11(row: Row) -> dict[str, Any]:
    trace = text(row, "deepseek_thinking_trajectory")
    return tagged(text(row, "question"), trace, text(row, "deepseek_attempt"))


def gsm8k(row: Row) -> dict[str, Any]:
    trace, sign, answer = text(row, "answer").partition("####")
    if not sign:
        raise GoldimaskError("column 'answer' has no '####' before the final number")
    return tagged(text(row, "question"), trace.strip(), answer.strip())


def lift_12k(row: Row) -> dict[str, Any]:
    traces = row.get("thinking_trajectories")
    trace = str(first(traces, "thinking_trajectories")) if traces else ""
    return tagged(text(row, "question"), trace, text(row, "sol"))


def kodcode(row: Row) -> dict[str, Any]:
    """A conversation whose answer is a program."""
    turns = row.get("conversations") or []
    said = {"human": "", "gpt": ""}
    for turn in turns:
        speaker = turn.get("from")
        if speaker in said and not said[speaker]:
            said[speaker] = str(turn.get("value") or "").strip()
    question = said["human"] or text(row, "question").strip()
    response = said["gpt"].replace("<think>", "<reasoning>").replace("</think>", "</reasoning>")
    if _has(response, "reasoning") and _has(response, "answer"):
        return {"prompt": f"{FORMAT}\n\n{question}", "response": response}
    solution = str(row.get("r1_solution") or row.get("solution") or "").strip()
    if not solution:
        raise GoldimaskError("neither 'r1_solution' nor 'solution' holds an answer")
    if _has(response, "reasoning"):
        closed = f"{response}\n<answer>{solution}</answer>"
        return {"prompt": f"{FORMAT}\n\n{question}", "response": closed}
    return tagged(question, response, solution)


def _has(response: str, tag: str) -> bool:
    return f"<{tag}>" in response and f"</{tag}>" in response


CORPORA.add("s1k", Corpus("simplescaling/s1K", s1k), summary="s1K, 1,000 reasoning traces")
CORPORA.add("s1k-1.1", Corpus("simplescaling/s1K-1.1", s1k_11), summary="s1K-1.1, DeepSeek traces")
CORPORA.add(
    "lift-sft-12k", Corpus("divelab/LIFT-SFT-12K", lift_12k), summary="LIFT-SFT-12K, mathematics"
)
CORPORA.add(
    "gsm8k", Corpus("openai/gsm8k", gsm8k, subset="main"), summary="GSM8K, grade-school mathematics"
)
CORPORA.add(
    "kodcode", Corpus("KodCode/KodCode-Light-RL-10K", kodcode), summary="KodCode-Light-RL-10K, code"
)
