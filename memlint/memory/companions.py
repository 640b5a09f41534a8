"""Other models that stay on the card beside the trained one: reward models, a teacher, frozen encoders, an evaluator; PPO's value model.

Their weights are counted, and what trains a value model. Their forward passes run without gradients, one batch at a time, while no graph
of the trained model exists; the activations of that are not counted.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.memory.optimizer import state_bytes
from memlint.memory.setup import ITEMSIZES, Setup
from memlint.memory.tensor import Ledger, Parameter, Storage
from memlint.models.architecture import Architecture
from memlint.models.lookup import lookup
from memlint.typed import NamedTuple

BITS = {"bnb_4bit": 4, "bnb_8bit": 8, "gptq": 4, "awq": 4}
"""Companions that are loaded quantised, by method."""


class Companion(NamedTuple):
    """What one of them holds, and the sentence that says so."""

    nbytes: int
    sentence: str


def companions(run: TrainingRun, setup: Setup, architecture: Architecture) -> list[Companion]:
    """Everything of that kind that the run names, and what its framework keeps unasked."""
    return [
        *(_frozen(name, dtype, setup) for name, dtype in (run.value("model.companions") or {}).items()),
        *_trained(run, setup),
        *_of_framework(run, setup, architecture),
    ]


def _frozen(name: str, dtype: str | None, setup: Setup) -> Companion:
    found = lookup(name).architecture
    if found is None or not found.params:
        return Companion(0, f"{name} stays on the card too; its size is not known")
    held = dtype or (found.dtype if setup.stack.loads_checkpoint_dtype else None) or "float32"
    nbytes = found.params * BITS[held] // 8 if held in BITS else found.params * ITEMSIZES.get(held, 4)
    if setup.sharding.strategy == "zero3":  # TRL 1.16 `models/utils.py`, `prepare_deepspeed`: sharded like the policy
        nbytes = setup.sharding.share(nbytes)
    return Companion(nbytes, f"{name} stays on the card beside the trained model: {nbytes / 2**30:.1f} GiB in {held}")


def _trained(run: TrainingRun, setup: Setup) -> list[Companion]:
    """PPO's value model: weights, gradients and optimizer states of their own, in full whatever adapts the policy (TRL 1.16
    `experimental/ppo/ppo_trainer.py`: one optimizer over `PolicyAndValueWrapper`)."""
    name = run.value("model.value_model")
    found = lookup(str(name)).architecture if name else None
    if found is None or not found.params:
        return []
    itemsize, sharding = setup.weight_itemsize, setup.sharding
    whole = Parameter(Storage(Ledger(), 0), found.params, itemsize, str(name), "linear", -1)
    weights, states = found.params * itemsize, sum(state_bytes(setup, whole))
    nbytes = (sharding.share(weights) if sharding.shards_weights else weights) * 2 + (
        sharding.share(states) if sharding.shards_states else states
    )
    return [
        Companion(nbytes, f"the value model {name} is trained too: {nbytes / 2**30:.1f} GiB with gradients and optimizer states")
    ]


def _of_framework(run: TrainingRun, setup: Setup, architecture: Architecture) -> list[Companion]:
    """PEFT's image-generation comparison (peft 0.19.2.dev, `method_comparison/image-gen/run.py`): the DINOv2 evaluator is moved to the card
    at start (`get_dino_encoder`, weights as in the checkpoint) and so are the prompt embeddings of the 14 training images
    (`precompute_prompt_caches`: of 20 images, `data.py` keeps 2 for validation and 4 for the test)."""
    if (run.value("framework.name"), run.value("objective")) != ("peft_method_comparison", "diffusion"):
        return []
    width = int(architecture.config.get("joint_attention_dim") or 0)
    cached = 14 * setup.media.text_tokens * width * setup.weight_itemsize
    return [
        _frozen("facebook/dinov2-base", "float32", setup),
        Companion(cached, f"embeddings of the training prompts are cached on the card: {cached / 2**20:.0f} MiB"),
    ]
