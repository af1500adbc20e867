"""A decode as plain data, and its replay as a page.

A record, from `goldimask.decode.Decoded`:

    label           whose decode this is ("before", "goldimask-d", a run's name)
    prompt          {"vocab", "index"} of the prompt;  canvas: the same of the response
    trace           per step {"step", "block", "positions", "confidence"}
    decoder, tau, block, length, steps, steps_to_eos, complete
    verdict         optional, such as {"correct": true, "extracted": "42", "answer": "42"}

Records of the same prompt are shown side by side under one slider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldimask.report.page import section, write_page
from goldimask.report.page import significant as sig
from goldimask.report.text import token_table

if TYPE_CHECKING:
    from goldimask.decoding.types import Decoded

THRESHOLDS = ("threshold",)  # decoders whose tau is a confidence


def decode_record(
    decoded: Decoded,
    tokenizer: Any,
    label: str,
    *,
    verdict: Mapping[str, Any] | None = None,
    special: Sequence[int] | None = None,
) -> dict[str, Any]:
    """One decoded response with its trace (see the module's text)."""
    s = decoded.settings
    return {
        "label": label,
        "prompt": token_table(tokenizer, decoded.prompt_ids, special),
        "canvas": token_table(tokenizer, decoded.tokens, special),
        "text": decoded.text,
        "trace": [
            {
                "step": c.step,
                "block": c.block,
                "positions": list(c.positions),
                "confidence": [sig(float(x)) for x in c.confidence],
            }
            for c in decoded.trace
        ],
        "decoder": s.decoder,
        "tau": s.tau if s.decoder in THRESHOLDS else None,
        "block": s.block,
        "length": len(decoded.tokens),
        "steps": decoded.steps,
        "steps_to_eos": decoded.steps_to_eos,
        "complete": decoded.complete,
        "verdict": dict(verdict) if verdict else None,
    }


def group_decodes(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of one prompt together, in order of appearance."""
    groups: dict[tuple[int, ...], dict[str, Any]] = {}
    for record in records:
        prompt = record["prompt"]
        key = tuple(prompt["vocab"][i]["id"] for i in prompt["index"])
        group = groups.setdefault(key, {"prompt": prompt, "models": []})
        group["models"].append({k: v for k, v in record.items() if k != "prompt"})
    return list(groups.values())


def decodes_section(
    records: Sequence[Mapping[str, Any]], title: str = "Decoding, step by step", note: str = ""
) -> dict[str, Any]:
    return section("decodes", title, {"groups": group_decodes(records)}, note)


def decode_page(
    path: Path | str, records: Sequence[Mapping[str, Any]], title: str = "Decoding"
) -> Path:
    """Write the replay of `decode_record` records; several of one prompt stand side by side."""
    return write_page(path, title, [decodes_section(records)])
