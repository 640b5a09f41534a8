"""A model as text, for `memlint models`: its shape, its parameters with their arithmetic, where they were read."""

from __future__ import annotations

from memlint.models import catalogue, table
from memlint.models.architecture import Architecture
from memlint.models.lookup import Lookup

WIDTH = 12


def describe(found: Lookup) -> list[str]:
    """Lines for a person about one looked-up model; for an unknown one, how to tell memlint about it."""
    architecture = found.architecture
    if architecture is None:
        return [found.how, *_advice(found)]
    lines = [architecture.name, _row("how", found.how if found.exact else f"{found.how} (not exact)")]
    row = found.entry or {} if found.exact else {}
    kind = f"{architecture.model_type} ({row['class']})" if "class" in row else architecture.model_type
    lines.append(_row("type", kind))
    lines.append(_row("shape", _shape(architecture)))
    if architecture.dropouts:
        lines.append(_row("dropout", ", ".join(f"{key} {value:g}" for key, value in architecture.dropouts.items())))
    if architecture.dtype:
        lines.append(_row("stored as", architecture.dtype))
    if architecture.params:
        lines += [_row("parameters", f"{architecture.params:,}"), *_arithmetic(architecture)]
    if row:
        lines.append(_row("verified" if row.get("verified") else "unverified", row.get("check") or "no published count"))
        if "note" in row:
            lines.append(_row("note", row["note"]))
        if "license" in row:
            lines.append(_row("licence", row["license"]))
        lines.append(_row("source", row.get("source", "")))
    return lines + ([] if found.exact else _advice(found))


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
    """The Linears, largest share first, and what is left: embeddings, norms, biases, convolutions."""
    assert architecture.params is not None
    products = [
        (fan_in * fan_out * count, f"{name}  {fan_in:,} x {fan_out:,} x {count:,}")
        for name, fan_in, fan_out, count in architecture.linears
        if not (architecture.tied and name == "lm_head")
    ]
    lines = [f"{'':{WIDTH}}{size:>20,}  {text}" for size, text in sorted(products, reverse=True)]
    rest = architecture.params - sum(size for size, _ in products)
    if products and rest >= 0:
        lines.append(f"{'':{WIDTH}}{rest:>20,}  everything else (embeddings, norms, biases, fused experts)")
    return lines


def _advice(found: Lookup) -> list[str]:
    near = [f"did you mean {', '.join(found.suggestions)}?"] if found.suggestions else []
    return near + [f"  {text}" for text in found.tell]


def _row(label: str, text: str) -> str:
    return f"  {label:{WIDTH}}{text}"
