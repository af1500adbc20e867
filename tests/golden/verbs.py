from pathlib import Path


def json_keys(folder: Path) -> dict:
    return {}
