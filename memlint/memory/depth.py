"""Which layers of a stack are simulated: those of a shorter model of the same pattern, the rest by repetition.

Layers differ by kind (attention in full or in a window, linear attention, dense or of experts), and kinds come in a pattern: some first
layers, then a period. A model with as few periods as show how layers follow one another stands for the whole one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memlint.memory.setup import Setup
from memlint.memory.timeline import EDGE, MIDDLE, SIMULATED, Repeated, uniform
from memlint.models.architecture import Architecture
from memlint.typed import Any, NamedTuple

FIRST_DENSE = "first_k_dense_replace"
DUAL = {"clip", "siglip"}
STACKS = {
    **dict.fromkeys(["bart", "mbart", "pegasus", "m2m_100", "marian", "whisper"], ("encoder_layers", "decoder_layers")),
    **dict.fromkeys(["t5", "mt5", "umt5"], ("num_layers", "num_decoder_layers")),
    "t5gemma": ("encoder.num_hidden_layers", "decoder.num_hidden_layers"),
    **dict.fromkeys(DUAL, ("vision_config.num_hidden_layers", "text_config.num_hidden_layers")),
}
"""Types of several stacks: the keys of their depths, in the order in which they run."""
TOWERS = ("vision_config", "audio_config")
"""Parts of a configuration that describe other stacks than the text's."""
LOOKING = "cross_attention_layers"
"""The layers that look at images, by their numbers (Llama 3.2 Vision)."""
SHARED = "num_kv_shared_layers"
DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WINDOWED: dict[object, str] = dict.fromkeys(("sliding_attention", "chunked_attention"), "full_attention")
"""Attention in a window is no other than attention in full where no sequence is longer; the pages know."""


class Few(NamedTuple):
    """A model of fewer layers, and which of them are repeated to give the whole."""

    architecture: Architecture
    layers: int
    repeats: tuple[Repeated, ...]


def plans(setup: Setup, architecture: Architecture) -> Iterator[Few]:
    """What may be simulated in place of the whole model, the cheapest first; pages and events say whether it may."""
    layers, sharding, config = setup.layers, setup.sharding, architecture.config
    if sharding.shards_weights and not sharding.wrapped:
        return  # without a wrap policy one flat unit spans all layers, and its reduction happens in one place
    alone = sharding.ranks == 1 or sharding.strategy in ("none", "ddp", "dp")
    if architecture.model_type in STACKS and not (architecture.model_type in DUAL and setup.objective == "image_classification"):
        if alone:
            yield from _stacks(architecture, STACKS[architecture.model_type])
        return
    kinds = kinds_of(config, layers)
    if len({tuple(WINDOWED.get(kind, kind) for kind in layer) for layer in kinds}) < 2 and layers > SIMULATED:
        yield Few(architecture, SIMULATED, uniform(SIMULATED, layers))
    if not alone or len(set(kinds)) < 2:
        return
    sharing = layers - shared_layers(config)
    kept: list[int] = []
    repeats: list[Repeated] = []
    for begin, end in ((0, sharing), (sharing, layers)):
        few, repeat = _few_of(kinds[begin:end], len(kept))
        kept += range(begin, begin + few)
        repeats += repeat
    if repeats:
        short = architecture._replace(config=_cut(config, layers, kept, sharing), layers=len(kept), params=None)
        yield Few(short, len(kept), tuple(repeats))


def _stacks(architecture: Architecture, keys: tuple[str, ...]) -> Iterator[Few]:
    """Five layers of each stack, where all of a stack's layers are alike."""
    config: dict[str, Any] = dict(architecture.config)
    repeats: list[Repeated] = []
    simulated = 0
    for key in keys:
        outer, _, inner = key.rpartition(".")
        part = config.get(outer) if outer else config
        layers = part.get(inner) if isinstance(part, Mapping) else None
        if not isinstance(layers, int) or layers <= SIMULATED:
            return
        if outer and isinstance(part, Mapping):
            config[outer] = {**part, inner: SIMULATED}
        else:
            config[inner] = SIMULATED
        repeats.append(Repeated(simulated + MIDDLE, 1, layers - SIMULATED, simulated + SIMULATED))
        simulated += SIMULATED
    yield Few(architecture._replace(config=config, layers=SIMULATED), SIMULATED, tuple(repeats))


def _few_of(kinds: Sequence[object], offset: int) -> tuple[int, list[Repeated]]:
    """How many of these layers, the first of which is simulated as `offset`, stand for all of them, and what of them is repeated."""
    layers = len(kinds)
    found = pattern(kinds)
    if found is None:
        return layers, []
    before, period = found
    first = before + EDGE
    few = first + period + EDGE
    few += (layers - few) % period
    if few >= layers:
        return layers, []
    return few, [Repeated(offset + first, period, (layers - few) // period, offset + few)]


def shared_layers(config: Mapping[str, Any]) -> int:
    """Layers at the end that use keys and values of earlier ones (Gemma 4)."""
    inner = config.get("text_config")
    value = (inner if isinstance(inner, Mapping) else config).get(SHARED)
    return value if isinstance(value, int) else 0


def kinds_of(config: Mapping[str, Any], layers: int, depth: int = 0) -> list[tuple[object, ...]]:
    """The kind of each layer, by every list of the configuration that has an entry for each layer."""
    listed = [value for key, value in config.items() if _is_listed(value, layers) and key != LOOKING]
    dense = config.get(FIRST_DENSE)
    dense = dense if isinstance(dense, int) else 0
    looking = config.get(LOOKING)
    looking = looking if isinstance(looking, Sequence) else ()
    kinds: list[tuple[object, ...]] = [
        (index < dense, index in looking, *(str(value[index]) for value in listed)) for index in range(layers)
    ]
    if depth == 0:
        for key, value in config.items():
            if isinstance(value, Mapping) and key not in TOWERS:
                kinds = [(*own, *other) for own, other in zip(kinds, kinds_of(value, layers, 1), strict=True)]
    return kinds


def pattern(kinds: Sequence[object]) -> tuple[int, int] | None:
    """(layers before the period begins, its length), the shortest together."""
    layers = len(kinds)
    for together in range(1, layers // 2 + 1):
        for period in range(1, together + 1):
            before = together - period
            if all(kinds[index] == kinds[index + period] for index in range(before, layers - period)):
                return before, period
    return None


def _is_listed(value: object, layers: int) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == layers


def _cut(config: Mapping[str, Any], layers: int, kept: list[int], sharing: int, depth: int = 0) -> dict[str, Any]:
    """The configuration of a model of the kept layers."""
    short: dict[str, Any] = {}
    for key, value in config.items():
        if _is_listed(value, layers) and key != LOOKING:
            short[key] = [value[index] for index in kept]
        elif key == LOOKING and isinstance(value, Sequence):
            short[key] = [index for index, old in enumerate(kept) if old in value]
        elif key in DEPTHS and value == layers:
            short[key] = len(kept)
        elif key == SHARED and isinstance(value, int):
            short[key] = sum(index >= sharing for index in kept)
        elif depth == 0 and isinstance(value, Mapping) and key not in TOWERS:
            short[key] = _cut(value, layers, kept, sharing, 1)
        else:
            short[key] = value
    return short
