"""A vision tower of which a run says the sizes, where the model's own configuration has none."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory.build import Builder
from memlint.typed import Any


def described_tower(b: Builder, config: Mapping[str, Any]) -> None:
    """The weights of a tower that is known by its sizes alone, in open_clip's words (`width`, `layers`, `mlp_ratio`; Qwen-VL's
    `visual.py`): a plain vision transformer, then, with `n_queries`, one cross-attention that resamples the patches to as many tokens of
    `output_dim`. Its activations are left out.
    """
    width, patch = int(config.get("width") or 0), int(config.get("patch_size") or 14)
    grid, inner = (int(config.get("image_size") or 224) // patch) ** 2, int(width * float(config.get("mlp_ratio") or 4))
    b.enter_layer(-1)
    b.frozen = not b.setup.media.vision_trained
    b.parameter("conv1", "conv", (width, 3 * patch * patch))
    b.parameter("positional_embedding", "embedding", (grid, width))
    for _ in range(int(config.get("layers") or 0)):
        linears = (("in_proj", width, 3 * width), ("out_proj", width, width), ("c_fc", width, inner), ("c_proj", inner, width))
        for name, fin, fout in linears:
            b.linear(name, fin, fout, bias=True)
        for name in ("ln_1", "ln_2"):
            b.norm(name, width)
            b.vector(f"{name}.bias", width)
    out = int(config.get("output_dim") or 0)
    if config.get("n_queries"):
        b.parameter("query", "embedding", (int(config["n_queries"]), out))
        for name, fin, fout in (("kv_proj", width, out), ("in_proj", out, 3 * out), ("out_proj", out, out), ("proj", out, out)):
            b.linear(name, fin, fout)
    b.frozen = False
