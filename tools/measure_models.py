"""Build the models of `tools/sources/models/configs.json` on the meta device and write what only a built model tells.

    python tools/measure_models.py [ID ...]         # needs torch and transformers (gemma-3n: timm); no weights, no network

`configs.json` is written by hand from the sources it names: id -> {config, published, published_source, source, note, ...};
`class` when it is not the model type's own (with `library` when it is one of diffusers), `published_adds` for what a stored checkpoint
has beyond the built model (buffers, a copy of a tied head), computed and named. The result goes beside it, as
`build_catalogue.py` reads it:
`models.json` (parameters, whether the count equals the published total), `linears.json` (every Linear) and, for every entry
of the catalogue, `computed.json` (what the class makes of the configuration where `memlint.models` does not arrive at the
same). An entry whose count differs from its published total is written unverified, with the difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from build_class_defaults import wanted

from memlint.models import catalogue, hf, table
from memlint.models.config import fill

SOURCES = Path(__file__).resolve().parent / "sources" / "models"


def measure(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One entry: what `models.json` and `linears.json` hold of it."""
    given = dict(row["config"])
    kind = given.pop("model_type")
    if row.get("library") == "diffusers":
        model = diffusion_network(row["class"], given)
    elif kind in CONFIG_MAPPING:
        model = hf.build(transformers, AutoConfig.for_model(kind, **given), row.get("class"))
    else:
        return unbuilt(row), {}
    found = hf.count(model)
    params = found.params
    published, adds = row.get("published"), row.get("published_adds") or {}
    if published is None:
        verified, check = False, None
    else:
        difference = published - params - sum(adds.values())
        verified = difference == 0
        extra = "".join(f" + {name} ({count:,})" for name, count in adds.items())
        check = f"exact{extra}" if verified else f"published total differs by {difference:+,}"
    return {
        **kept(row),
        "params": params,
        "params_class": type(model).__name__,
        "params_published": published,
        "verified": verified,
        "verification": check,
        "module_facts": {"tied_output": found.tied},
    }, {"linear": found.linears, "fused3d": found.stacked}


def diffusion_network(name: str, config: dict[str, Any]) -> Any:
    """A network of diffusers on the meta device."""
    import diffusers
    import torch

    with torch.device("meta"):
        return getattr(diffusers, name)(**config)


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What is copied from the configuration as it is."""
    return {key: row[key] for key in ("config", "library", "source", "note", "license", "published_source") if key in row}


def unbuilt(row: dict[str, Any]) -> dict[str, Any]:
    """A model whose code is in its own repository: its published total is the count."""
    check = "published total, not built: the code is in the model's repository"
    return {**kept(row), "params": row["published"], "verified": False, "verification": check}


def computed(config: dict[str, Any]) -> dict[str, Any]:
    """What the class makes of a configuration, as far as memlint's own reading differs; {} for types of other code."""
    given = json.loads(json.dumps(config))
    kind = given.pop("model_type")
    if kind not in CONFIG_MAPPING:
        return {}
    return differing(fill(config), AutoConfig.for_model(kind, **given).to_dict())


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The keys with a bearing on memory whose values differ; `tie_word_embeddings` depends on the version and stays."""
    found: dict[str, Any] = {}
    for key, value in theirs.items():
        if key in ("model_type", "tie_word_embeddings") or not wanted(str(key), value):
            continue
        mine = ours.get(key)
        if isinstance(value, dict) and isinstance(mine, dict):
            if inner := differing(mine, value):
                found[key] = inner
        elif mine != value and not (key not in ours and value in (None, False, [], {})):
            found[key] = value
    return found


def main(ids: list[str]) -> None:
    """Measure every entry, or report only those named."""
    transformers.logging.set_verbosity_error()
    rows = json.loads((SOURCES / "configs.json").read_text(encoding="utf-8"))
    models, linears = {}, {}
    for model_id in ids or rows:
        models[model_id], linears[model_id] = measure(rows[model_id])
        print(f"{model_id}: {models[model_id]['params']:,} {models[model_id]['verification']}")
    if ids:
        return
    more = {}
    for key, line in table.items(catalogue.FILE):
        if line.startswith("{") and (difference := computed(json.loads(line)["config"])):
            more[key] = difference
    for name, content in (("models.json", models), ("linears.json", linears), ("computed.json", more)):
        text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(content.items()) if value)
        (SOURCES / name).write_text("{\n" + text + "\n}\n", encoding="ascii", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
