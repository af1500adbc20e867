"""A job's folder: records, lock, unfinished folder, seal, key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from goldimask.errors import GoldimaskError
from goldimask.jobs import (
    damage,
    job_key,
    locked,
    make_manifest,
    partial_of,
    same_job,
    seal,
    unfinished_folder,
)
from goldimask.records import (
    Decoding,
    Outcome,
    append_lines,
    read_lines,
    read_outcomes,
    write_manifest,
)


def outcome(item: str, output: str = "x") -> Outcome:
    return Outcome(
        task="t", version="1", protocol="fixed", item=item, index=0, length=8, seed=0,
        decoding=Decoding(decoder="threshold", options={"tau": 0.9}), prompt="p", output=output,
        extracted=None, correct=False, detail="", hits=0.0, of=0.0, steps=1, seconds=0.1,
    )  # fmt: skip


def test_outcomes_come_back_and_a_later_line_wins(tmp_path: Path) -> None:
    append_lines(tmp_path / "samples-0.jsonl", [outcome("a"), outcome("b")])
    append_lines(tmp_path / "samples-1.jsonl", [outcome("a", "later \ud83d é")])
    found = read_outcomes(tmp_path)
    assert [o.output for o in found.values()] == ["later \ud83d é", "x"]


def test_a_torn_line_is_counted_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "samples-0.jsonl"
    append_lines(path, [outcome("a"), outcome("b")])
    path.write_bytes(path.read_bytes()[:-20])
    assert len(read_lines(path, Outcome)[0]) == 1 and read_lines(path, Outcome)[1] == 1
    append_lines(path, [outcome("c")])
    assert [o.item for o in read_lines(path, Outcome)[0]] == ["a", "c"]


def test_another_line_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "samples-0.jsonl"
    append_lines(path, [outcome("a")])
    path.write_text(path.read_text() + '{"task": 1}\n')
    with pytest.raises(GoldimaskError, match=r"samples-0.jsonl:2: not an outcome: "):
        read_lines(path, Outcome)


def test_the_key_depends_on_everything() -> None:
    one = job_key("train", weights="w", settings={"a": 1, "b": 2}, data="d")
    assert one == job_key("train", weights="w", settings={"b": 2, "a": 1}, data="d")
    others = [
        job_key("train", weights="v", settings={"a": 1, "b": 2}, data="d"),
        job_key("train", weights="w", settings={"a": 1, "b": 3}, data="d"),
        job_key("train", weights="w", settings={"a": 1, "b": 2}, data="e"),
        job_key("evaluate", weights="w", settings={"a": 1, "b": 2}, data="d"),
    ]
    assert len({one, *others}) == 5


def test_a_folder_of_other_weights_is_refused_with_both_names(tmp_path: Path) -> None:
    first = make_manifest("evaluate", "k1", "runs/a", "w1")
    second = make_manifest("evaluate", "k2", "runs/b", "w2")
    assert not same_job(tmp_path, first)
    write_manifest(tmp_path, first)
    assert same_job(tmp_path, first)
    with pytest.raises(GoldimaskError, match=r"runs/a .*w1.* not of runs/b .*w2"):
        same_job(tmp_path, second)


def test_a_second_writer_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = (
        "from pathlib import Path; from goldimask.jobs import locked\n"
        f"with locked(Path({str(folder)!r})): pass\n"
    )
    with locked(folder):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode != 0 and "is being written by process" in done.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_folder_has_the_lock_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    with (
        locked(tmp_path / "run"),
        pytest.raises(GoldimaskError, match="link' is being written by process"),
        locked(tmp_path / "link"),
    ):
        pass


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = (
        "import os; from pathlib import Path; from goldimask.jobs import take_lock\n"
        f"held = take_lock(Path({str(folder)!r})); os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    with locked(folder):
        pass


def test_a_folder_takes_its_name_when_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with pytest.raises(RuntimeError), unfinished_folder(folder) as partial:
        (partial / "a").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), unfinished_folder(folder, lambda p: True) as partial:
        (partial / "a").write_text("1")
        raise RuntimeError
    assert partial_of(folder).is_dir() and not folder.exists()
    with unfinished_folder(folder) as partial:
        (partial / "a").write_text("1")
    assert folder.is_dir() and damage(folder) is None and not partial_of(folder).exists()


def test_damage_is_seen_and_additions_are_not(tmp_path: Path) -> None:
    inner = tmp_path / "checkpoint-1"
    inner.mkdir()
    (inner / "weights").write_text("123")
    seal(inner)
    (tmp_path / "manifest").write_text("m")
    seal(tmp_path)
    (tmp_path / "eval").mkdir()
    assert damage(tmp_path) is None
    (inner / "weights").write_text("124")
    assert damage(inner) == "'weights' is damaged" and damage(tmp_path) is None
    (tmp_path / "manifest").unlink()
    assert damage(tmp_path) == "'manifest' is missing"


def test_a_seal_of_nothing_is_no_seal(tmp_path: Path) -> None:
    for content in ('{"files": {}}', '{"files": []}', '{"files": null}'):
        (tmp_path / "complete.json").write_text(content)
        assert damage(tmp_path) == "its complete.json names no files"


def test_a_seal_without_one_of_its_files_is_no_seal(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    seal(tmp_path)
    content = json.loads((tmp_path / "complete.json").read_text())
    assert damage(tmp_path) is None
    del content["files"]["b"]
    (tmp_path / "complete.json").write_text(json.dumps(content))
    assert damage(tmp_path) == "its complete.json is damaged"


def test_secrets_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secrets = ["hf_AbCdEfGh1234", "s3cr3t", "p4ss", "k3y", "t0k", "sk-abcdefgh12345", "me:pw"]
    words = [
        *("train", "tiny", f"data.path={secrets[0]}", "--token", secrets[1]),
        *(f"--password={secrets[2]}", f"x.wandb_api_key={secrets[3]}", f"hub_token={secrets[4]}"),
        *(f"x={secrets[5]}", f"data.path=https://{secrets[6]}@example.org/a", "--resume"),
        *("data.max_tokens=5", "tokenizer=abc", "method.preset=gift"),
    ]
    monkeypatch.setattr(sys, "argv", ["/bin/goldimask", *words])
    manifest = make_manifest("train", "k", "tiny", "w")
    with locked(tmp_path / "x"):
        holder = (tmp_path / ".x.lock.json").read_text()
    for secret in secrets:
        assert secret not in " ".join(manifest.command) and secret not in holder
    kept = ["goldimask", "train", "tiny", "data.path=***", "--token", "***", "--password=***"]
    assert manifest.command[:7] == kept
    assert manifest.command[-4:] == words[-4:]
