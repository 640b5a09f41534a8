"""The shape of a model: what the memory program needs to know about it, independent of where it was read."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.typed import Any, NamedTuple


class Architecture(NamedTuple):
    """A model's shape. `config` holds the Hugging Face native keys with the class defaults of its `model_type` filled in.

    The normalised fields are None where a model type has no such thing (a CNN has no heads). Nested text, vision and audio
    configs stay nested in `config`; the normalised fields then describe the text (decoder) part.
    """

    name: str
    """Hub id, path or a short description of an inline config."""
    model_type: str
    config: Mapping[str, Any]
    hidden_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_positions: int | None = None
    tied: bool = False
    """The output head shares the input embedding's weight."""
    activation: str = ""
    dtype: str | None = None
    """The dtype the checkpoint is stored in, where a source says so."""
    params: int | None = None
    """Unique parameters of the causal-LM (or native head) class, tied weights once; None when not counted."""
    linears: tuple[tuple[str, int, int, int], ...] = ()
    """Every Linear as (leaf name, in features, out features, how many); `lm_head` included."""
    stacked: tuple[tuple[str, int, int, int, int], ...] = ()
    """Three-dimensional parameters (the experts of a layer in one, convolutions) as (leaf name, *sizes, how many)."""
    dropouts: Mapping[str, float] = {}
    """Dropout probabilities above zero by their config key (class defaults or checkpoint values)."""
    exact: bool = True
    """False when the shape is a bounded guess from the name."""
    source: str = ""
    """Where the shape was read, for `memlint facts` and `memlint models`."""
