"""A model as text, for `memlint models`: its shape, its parameters with their arithmetic, where they were read."""

from __future__ import annotations

from math import prod

from memlint.models import catalogue, table
from memlint.models.architecture import Architecture
from memlint.models.lookup import Lookup
from memlint.typed import Any

WIDTH = 12
HEADS = ("lm_head", "lm_loss", "decoder", "proj_out", "embed_out")
"""What classes call the output head that may be the embedding's own weight."""
SHAPE = (
    "model_type", "params", "hidden_size", "layers", "heads", "kv_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_positions", "tied", "dtype", "source",
)  # fmt: skip
"""The fields of an architecture that `memlint models --format json` gives."""


def describe(found: Lookup) -> list[str]:
    """Lines for a person about one looked-up model; for an unknown one, how to tell memlint about it."""
    architecture = found.architecture
    if architecture is None:
        return [found.how, *_advice(found)]
    lines = [architecture.name, _row("how", found.how if found.exact else f"{found.how} (not exact)")]
    row = found.entry or {} if found.exact else {}
    kind = f"{architecture.model_type} ({row['class']})" if "class" in row else architecture.model_type
    lines.append(_row("type", kind))
    if shape := _shape(architecture):
        lines.append(_row("shape", shape))
    if architecture.dropouts:
        lines.append(_row("dropout", ", ".join(f"{key} {value:g}" for key, value in architecture.dropouts.items())))
    if architecture.dtype:
        lines.append(_row("stored as", architecture.dtype))
    if architecture.params:
        lines += [_row("parameters", f"{architecture.params:,}"), *_arithmetic(architecture)]
    elif row and "published" in row:
        lines.append(_row("parameters", f"{row['published']:,} published, not counted: transformers has no class for it"))
    if row:
        lines.append(_row("verified" if row.get("verified") else "unverified", row.get("check") or "no published count"))
        if "note" in row:
            lines.append(_row("note", row["note"]))
        if "license" in row:
            lines.append(_row("licence", row["license"]))
        lines.append(_row("source", row.get("source", "")))
    return lines + ([] if found.exact else _advice(found))


def document(found: Lookup) -> dict[str, Any]:
    """One looked-up model for programs; `linears` are [name, in, out, how many]."""
    shape = found.architecture
    assert shape is not None
    row = found.entry or {}
    return {
        "model": shape.name,
        "known from": found.how,
        "exact": found.exact,
        "verified": bool(found.exact and row.get("verified")),
        **{name: getattr(shape, name) for name in SHAPE},
        "linears": [list(linear) for linear in shape.linears],
    }


def matching(word: str) -> list[str]:
    """Catalogue ids that contain a word, without case; every id for an empty word."""
    wanted = word.lower()
    return [model_id for model_id in catalogue.ids() if wanted in model_id.lower()]


def version() -> str:
    """What the catalogue holds and which transformers its class defaults are of."""
    return f"{table.origin(catalogue.FILE)}; class defaults of {table.origin('class_defaults.tsv')}"


def _shape(architecture: Architecture) -> str:
    said = [
        (architecture.layers, "{:,} layers"),
        (architecture.hidden_size, "hidden {:,}"),
        (architecture.heads, "{:,} heads"),
        (architecture.kv_heads if architecture.kv_heads != architecture.heads else None, "{:,} key/value heads"),
        (architecture.head_dim, "{:,} wide"),
        (architecture.intermediate_size, "MLP {:,}"),
        (architecture.vocab_size, "vocabulary {:,}"),
        (architecture.max_positions, "{:,} positions"),
    ]
    text = ", ".join(form.format(value) for value, form in said if value)
    return f"{text}, head shares the embedding" if architecture.tied else text


def _arithmetic(architecture: Architecture) -> list[str]:
    """The Linears, stacked experts and the embedding, largest share first, and what is left: norms, biases, convolutions."""
    assert architecture.params is not None
    parts: list[tuple[str, tuple[int, ...]]] = [
        *((linear[0], linear[1:]) for linear in architecture.linears if not (architecture.tied and linear[0] in HEADS)),
        *((stack[0], stack[1:]) for stack in architecture.stacked),
    ]
    config = architecture.config
    width = config.get("embedding_size") or config.get("word_embed_proj_dim") or architecture.hidden_size
    if architecture.vocab_size and isinstance(width, int):
        parts.append(("embedding", (architecture.vocab_size, width)))
    products = sorted(((prod(sizes), f"{name}  {' x '.join(map('{:,}'.format, sizes))}") for name, sizes in parts), reverse=True)
    rest = architecture.params - sum(size for size, _ in products)
    if not architecture.linears or rest < 0:
        return []
    lines = [f"{'':{WIDTH}}{size:>20,}  {text}" for size, text in products]
    return [*lines, f"{'':{WIDTH}}{rest:>20,}  norms, biases and the rest"]


def _advice(found: Lookup) -> list[str]:
    near = [f"did you mean {', '.join(found.suggestions)}?"] if found.suggestions else []
    return near + [f"  {text}" for text in found.tell]


def _row(label: str, text: str) -> str:
    return f"  {label:{WIDTH}}{text}"
