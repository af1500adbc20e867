"""Fetching a checkpoint from the Hugging Face Hub, with one-line reasons when that fails."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from goldimask.errors import GoldimaskError

# no *.py and no *.bin: neither remote code nor pickles are ever used
SMALL = ["*.json", "*.txt", "*.jinja"]
WEIGHTS = ["*.safetensors"]


def download(repo: str, weights: bool = True) -> Path:
    """The local snapshot of a Hub repository; cached files are used without a network."""
    patterns = SMALL + WEIGHTS * weights
    offline = "or download it elsewhere and pass the folder instead of the name"
    try:
        return Path(snapshot_download(repo, allow_patterns=patterns))
    except GatedRepoError as error:
        reason = f"is gated; accept its terms on the Hub and log in, {offline}"
        raise GoldimaskError(f"backbone '{repo}' {reason}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        reason = f"does not exist on the Hub (or is private); check the name, {offline}"
        raise GoldimaskError(f"backbone '{repo}' {reason}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        reason = "is not in the local cache and the Hub cannot be reached; connect"
        raise GoldimaskError(f"backbone '{repo}' {reason}, {offline}") from error
    except (OSError, RuntimeError) as error:
        kind = type(error).__name__
        raise GoldimaskError(
            f"backbone '{repo}' could not be fetched ({kind}); connect, {offline}"
        ) from error
