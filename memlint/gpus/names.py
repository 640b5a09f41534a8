"""Finding a GPU by what people write: `a100-80gb`, `NVIDIA GeForce RTX 4090`, `4090`, `Tesla T4`, `24GB`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from memlint.gpus.gpu import Gpu, all_gpus

GIB = 1024**3
MAX_TEXT = 200

SIZE = r"(?<![\w.])(\d{1,3}(?:\.\d+)?)\s*(?:gib|gb|g)(?![a-z0-9])"
COUNT = r"^\s*\d{1,3}\s*[x*]\s+|^\s*\d{1,2}x(?=[a-z])|\s*[x*]\s*\d{1,3}\s*$"
BRACKETS = r"\([^)]*\)"

NOISE = (
    r"nvidia|geforce|tesla|quadro|rtx|gtx|amd|instinct|gpus?|cards?|class|vram|memory|graphics|tensor|core|"
    r"generation|edition|ada|blackwell|single|one|a|the|on|sxm\d?|pcie?|e|hbm\d?e?|gddr\dx?|ws|server|workstation|"
    r"colab|google|cloud"
)
"""Words that do not tell cards apart, except those in `DISTINCT`."""

DISTINCT = {("6000", "ada"), ("6000", "pro"), ("6000", "blackwell")}
"""RTX 6000 Ada and RTX PRO 6000: here the generation is the name."""

TOLERANCE = 0.06
"""Sizes are written loosely: 15 GB for a T4, 96 GB for 94."""


def find(text: str) -> Gpu | None:
    """The card that a text names; None when it names none, or one of a size that this card does not come in.

    A name that several sizes share (`A100`) is the smallest of them. A size alone (`24GB`, `80g`) is a card with the
    least capacity of that class.
    """
    text = text[:MAX_TEXT].lower().replace("_", " ").replace("-", " ").replace("/", " ")
    for reading in (re.sub(BRACKETS, " ", text), text):
        size = re.search(SIZE, reading)
        gigabytes = float(size.group(1)) if size else None
        words = _words(re.sub(SIZE, " ", re.sub(COUNT, " ", reading)))
        if not words and gigabytes is None:
            continue
        if not words or (len(words) == 1 and gigabytes is None and words[0] not in _index() and _is_size(words[0])):
            return _of_size(gigabytes if gigabytes is not None else float(words[0]))
        if found := _named(words, gigabytes):
            return found
    return None


def sizes(text: str) -> tuple[Gpu, ...]:
    """The cards that a name may mean, smallest first: `A100` has 40 or 80 GB; one where the text says which."""
    card = find(text)
    if card is None:
        return ()
    words = _words(re.sub(COUNT, " ", text[:MAX_TEXT].lower().replace("_", " ").replace("-", " ")))
    return _index().get("".join(words), (card,))


def suggest(text: str, count: int = 3) -> tuple[str, ...]:
    """Names of cards that resemble a text, the most similar first."""
    import difflib  # only on the way to an error message

    wanted = "".join(_words(text[:MAX_TEXT].lower())) or text[:MAX_TEXT].lower()
    keys = difflib.get_close_matches(wanted, _index(), n=count * 2, cutoff=0.5)
    names = dict.fromkeys(gpu.name for key in keys for gpu in _index()[key])
    return tuple(names)[:count]


def _named(words: list[str], gigabytes: float | None) -> Gpu | None:
    """The card whose name is the longest run of the words, in the size asked for."""
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            cards = _index().get("".join(words[start : start + length]))
            if not cards or (length == 1 and words[start].isdigit() and len(words) > 2):
                continue
            if gigabytes is None:
                return cards[0]
            fitting = [gpu for gpu in cards if abs(gpu.memory_gb - gigabytes) <= TOLERANCE * gigabytes]
            return min(fitting, key=lambda gpu: abs(gpu.memory_gb - gigabytes)) if fitting else None
    return None


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[Gpu, ...]]:
    """Squeezed name -> its cards, smallest first."""
    index: dict[str, list[Gpu]] = {}
    for gpu in all_gpus():
        for key in gpu.keys:
            index.setdefault(key, []).append(gpu)
    return {key: tuple(cards) for key, cards in index.items()}


def keys(names: Iterable[str]) -> Iterator[str]:
    """The squeezed names of a card (`tools/build_gpus.py` writes them down)."""
    for name in names:
        text = name.lower().replace("-", " ").replace("/", " ")
        for reading in dict.fromkeys((text, re.sub(BRACKETS, " ", text))):
            words = _words(re.sub(SIZE, " ", reading))
            if words:
                yield "".join(words)


def _words(text: str) -> list[str]:
    """The words that tell cards apart: letters and digits split, noise dropped."""
    words = [word for part in re.findall(r"[a-z0-9.]+", text) for word in _parts(part)]
    said = set(words)
    distinct = {word for pair in DISTINCT if said.issuperset(pair) for word in pair}
    return [word for word in words if word in distinct or not re.fullmatch(NOISE, word)]


def _parts(part: str) -> list[str]:
    """`rtx4090ti` is rtx, 4090, ti; `a100` and `h100x` stay whole words."""
    if re.fullmatch(NOISE, part):
        return [part]
    match = re.fullmatch(r"(rtx|gtx|geforce|tesla|nvidia)(.+)", part)
    if match:
        return [match.group(1), *_parts(match.group(2))]
    match = re.fullmatch(r"(\d{4})(ti|super|d|m)(.*)", part)
    if match:
        return [match.group(1), match.group(2), *(_parts(match.group(3)) if match.group(3) else [])]
    match = re.fullmatch(r"([a-z]+\d+)(sxm\d?|pcie|nvl)", part)
    return [match.group(1), match.group(2)] if match else [part]


def _is_size(word: str) -> bool:
    return word.isdigit() and 4 <= int(word) <= 512


def _of_size(gigabytes: float) -> Gpu | None:
    """A card of a size: the least capacity sold under it; for a size that no card has, that of the nearest, scaled."""
    if not 1 <= gigabytes <= 1024:
        return None
    name = f"{gigabytes:g} GB card"
    cards = [gpu for gpu in all_gpus() if gpu.memory_gb == gigabytes] or [
        gpu for gpu in all_gpus() if abs(gpu.memory_gb - gigabytes) <= TOLERANCE / 2 * gigabytes
    ]
    if cards:
        return cards[0]._replace(name=name, aliases=(), common=False)
    nearest = min(all_gpus(), key=lambda gpu: abs(gpu.memory_gb - gigabytes))
    capacity = int(nearest.capacity_bytes * gigabytes / nearest.memory_gb)
    return nearest._replace(name=name, aliases=(), capacity_bytes=capacity, confidence="low", common=False)
