"""Where rows come from: a file, a folder, a Hub id, a named corpus, or a mixture of these.

A mixture takes n_i = round(N w_i / sum w) rows of source i, in an order drawn from the seed; rows
keep their place in the errors. N is `mixture_size`, or the largest number that repeats no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from goldimask.config import DataSection, MixtureItem
from goldimask.data.corpora import CORPORA, Corpus
from goldimask.data.rows import Pair, read_rows, suffix_of, to_pair
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream

FILES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
Row = tuple[str, Any]  # (place, row)
Source = DataSection | MixtureItem
Complain = Callable[[GoldimaskError], None]


def source_pairs(source: Source, limit: int | None, bad: Complain, count: Callable[[], None]):
    """Pairs of one source; `count` sees every row, `bad` every row that is none."""
    pairs: list[Pair] = []
    convert = _converter(source)
    for where, row in islice(source_rows(source), limit):
        count()
        try:
            pairs.append(to_pair(convert(row, where), where))
        except GoldimaskError as error:
            bad(error)
    return pairs


def source_rows(source: Source) -> Iterable[Row]:
    """Raw rows of a corpus or a path, with their places."""
    corpus = None if source.corpus is None else CORPORA.get(source.corpus, "data.corpus")
    if isinstance(corpus, Corpus):
        place = source.path or corpus.hub
        subset = source.subset or (corpus.subset if source.path is None else None)
        return read_place(place, source.split or corpus.split, subset)
    if corpus is not None:
        if source.path is not None:
            raise GoldimaskError(
                f"data.path: corpus '{source.corpus}' is generated and reads no file; give one"
            )
        return ((f"corpus {source.corpus}: row {i}", row) for i, row in enumerate(corpus()))
    if source.path is None:
        raise GoldimaskError(
            "data: give data.path (a file, a folder or a Hub id), data.corpus (a name) or "
            "data.mixture"
        )
    return read_place(source.path, source.split, source.subset)


def _converter(source: Source) -> Callable[[Any, str], Any]:
    corpus = None if source.corpus is None else CORPORA.get(source.corpus, "data.corpus")
    if not isinstance(corpus, Corpus):
        return lambda row, where: row

    def convert(row: Any, where: str) -> Any:
        if not isinstance(row, Mapping):
            raise GoldimaskError(f"{where}: a row of corpus '{source.corpus}' is an object")
        try:
            return corpus.format(row)
        except GoldimaskError as error:
            raise GoldimaskError(f"{where}: corpus '{source.corpus}': {error}") from error

    return convert


def read_place(place: str, split: str | None = None, subset: str | None = None) -> Iterator[Row]:
    """Rows of a data file, a folder or a Hub id."""
    path = Path(place).expanduser()
    if path.is_dir():
        yield from _folder(path, split)
    elif is_hub_id(place) and not path.exists():
        yield from _hub(place, split or "train", subset)
    else:
        yield from read_rows(path)


def is_hub_id(place: str) -> bool:
    """`owner/name` that does not look like a file."""
    plain = place.count("/") == 1 and not place.startswith((".", "/", "~"))
    return plain and suffix_of(Path(place)) not in FILES and all(place.split("/"))


def _folder(folder: Path, split: str | None) -> Iterator[Row]:
    """What `datasets` saved to disk, or every data file in the folder, in order of name."""
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        from datasets import load_from_disk

        loaded: Any = load_from_disk(str(folder))
        yield from _dataset(_one_split(loaded, split, str(folder)), str(folder))
        return
    files = sorted(f for f in folder.iterdir() if f.is_file() and suffix_of(f) in FILES)
    if split is not None:
        files = [f for f in files if f.name.startswith(split)]
    if not files:
        named = f" whose name starts with '{split}'" if split else ""
        raise GoldimaskError(
            f"data.path: '{folder}' holds neither a saved dataset nor a {', '.join(FILES)} file"
            f"{named}"
        )
    for file in files:
        yield from read_rows(file)


def _one_split(loaded: Any, split: str | None, where: str) -> Any:
    if not hasattr(loaded, "keys"):
        return loaded
    names = list(loaded.keys())
    wanted = split or ("train" if "train" in names or len(names) > 1 else names[0])
    if wanted not in names:
        raise GoldimaskError(f"data.split: '{wanted}' is not in {where}; it has {', '.join(names)}")
    return loaded[wanted]


def _hub(name: str, split: str, subset: str | None) -> Iterator[Row]:
    from datasets import load_dataset

    try:
        loaded = load_dataset(name, subset, split=split)
    except Exception as error:  # the library raises many kinds: network, names, formats
        reason = " ".join(str(error).split())[:200]
        raise GoldimaskError(
            f"data: '{name}' (split {split}) could not be fetched from the Hub: {reason}; connect, "
            "or download it elsewhere and set data.path to the file or folder"
        ) from error
    yield from _dataset(loaded, name)


def _dataset(loaded: Any, where: str) -> Iterator[Row]:
    return ((f"{where}: row {i}", row) for i, row in enumerate(loaded))


def mix(
    parts: Sequence[Sequence[Pair]], weights: Sequence[float], size: int | None, seed: int
) -> list[Pair]:
    """Rows of every part in proportion to its weight, shuffled by the seed."""
    total = sum(weights)
    if not total > 0 or min(weights) < 0:
        raise GoldimaskError(f"data.mixture: weights {list(weights)} must be positive")
    shares = [w / total for w in weights]
    if size is None:
        size = int(min(len(p) / s for p, s in zip(parts, shares, strict=True) if s > 0))
    chosen: list[Pair] = []
    for number, (part, share) in enumerate(zip(parts, shares, strict=True)):
        rng = Keys(seed).rng(number, Stream.SPLIT)
        wanted, order = round(size * share), []
        while len(order) < wanted and part:  # a small part is repeated, in a new order
            order += rng.permutation(len(part)).tolist()
        chosen += [part[i] for i in order[:wanted]]
    rng = Keys(seed).rng(len(parts), Stream.SPLIT)
    return [chosen[i] for i in rng.permutation(len(chosen))]
