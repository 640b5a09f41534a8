"""Where a script fixes the length of its samples: tokenizer calls with truncation, block sizes of grouped texts."""

from __future__ import annotations

from memlint.facts import Fact, default, fixed
from memlint.frameworks.native import plain
from memlint.frameworks.state import Collected, Tokenization
from memlint.read.pyeval.joins import distinct, merge
from memlint.read.pyeval.values import Array, Call, possible
from memlint.source import Span
from memlint.typed import Any

MAX_LENGTH = 10_000_000
"""Longer is `model_max_length` meaning no limit."""


def record_tokenization(collected: Collected, call: Call) -> None:
    """Remember a call with `truncation` and `max_length`."""
    length = call.kwargs.get("max_length")
    truncation = call.kwargs.get("truncation")
    padding = call.kwargs.get("padding")
    padded = padding is not None and padding.known and padding.value == "max_length"
    if length is None or not (
        padded or (truncation is not None and not (truncation.known and truncation.value in (False, None)))
    ):
        return
    found = Tokenization(length, call.span, padded, "text_target" in call.kwargs and not call.args, fills=padded)
    if not any(old.span == call.span for old in collected.tokenizations):
        collected.tokenizations.append(found)
    else:
        collected.tokenizations[:] = [found if old.span == call.span else old for old in collected.tokenizations]


def record_block(collected: Collected, size: Fact, span: Span) -> None:
    """Remember the size of the blocks that texts are grouped into; it decides over earlier truncation."""
    if size.known and isinstance(size.value, int) and not isinstance(size.value, bool) and size.value >= 16:
        collected.tokenizations.append(Tokenization(size, span, True, False))
        collected.tokenizations.sort(key=lambda t: not t.padded)


def record_random(collected: Collected, call: Call) -> None:
    """Remember `torch.randint(0, vocabulary, (length,))` of a dataset that makes its samples up."""
    size = call.kwargs.get("size") or next((fact for fact in reversed(call.args) if isinstance(fact.value, Array)), None)
    if size is not None and isinstance(size.value, Array) and len(size.value.items) == 1 and _usable(size.value.items[0]):
        record_block(collected, size.value.items[0], call.span)


_TOKENS = frozenset({"input_ids", "ids", "token_ids", "full_ids", "all_ids", "full_input_ids", "tokens", "encoded", "inputs"})
"""What scripts call the tokens of a whole sample; a prompt's or an answer's are a part of it."""


def record_cut(collected: Collected, name: str, length: Fact, span: Span) -> None:
    """Remember `input_ids[:max_length]`: a sample's tokens are cut by hand."""
    parts = name.split("+")
    whole = name in _TOKENS or (len(parts) > 1 and all(part.endswith(("ids", "tokens")) for part in parts))
    if whole and _usable(length) and not any(old.span == span for old in collected.tokenizations):
        collected.tokenizations.append(Tokenization(length, span, False, False, by_hand=True))


def sequence_length(collected: Collected, *sources: Any) -> dict[str, Fact]:
    """`batch.sequence_length` from the tokenizer calls seen so far; nothing where there is none."""
    found = [t for t in collected.tokenizations if not t.targets and _usable(t.length)]
    if not found:
        return {}
    grouped = [t for t in found if t.padded]
    chosen = grouped or [t for t in found if not t.by_hand] or found
    lengths = [plain(t.length) for t in chosen]
    if len(distinct(v for fact in lengths for v in fact.values)) > 1:
        return {"batch.sequence_length": merge(lengths)}
    facts = {"batch.sequence_length": lengths[0]}
    if chosen[0].fills:
        facts["batch.pad_to_max_length"] = fixed(True, chosen[0].span)
    if not chosen[0].padded:
        facts["batch.sequence_length_is_cap"] = default(True, "truncation length: samples are padded to their batch")
    return facts


def _usable(length: Fact) -> bool:
    values = possible(length)
    return bool(values) and all(isinstance(v, int) and 0 < v < MAX_LENGTH for v in values)
