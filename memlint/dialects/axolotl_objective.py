"""What an Axolotl configuration trains towards: objective, loss and its kernels, evaluation.

Read at axolotl 067b021c8b, `core/builders/*.py`, `integrations/{liger,cut_cross_entropy}`, `utils/trainer.py`.
"""

from __future__ import annotations

from memlint.dialects.axolotl_settings import NOTE, Settings
from memlint.dialects.derive import Facts, boolean, derive, integer, number, soften
from memlint.facts import Fact, default, fixed
from memlint.typed import Any

_OBJECTIVES = {"ipo": "dpo", "gdpo": "grpo", "simpo": "simpo"}
_LIGER = {"liger_rms_norm": "rms_norm", "liger_rope": "rope", "liger_swiglu": "swiglu", "liger_glu_activation": "glu"}


def evaluation(settings: Settings, result: Facts) -> Facts:
    """Evaluation needs data (`val_set_size` or `test_datasets`) and a rhythm (steps, or a strategy)."""
    size = settings.get("val_set_size", 0)
    rhythm = settings.given("evals_per_epoch", "eval_steps", "eval_strategy", "evaluation_strategy")
    tests = settings.given("test_datasets")
    data = tests if tests is not None else size

    def enabled(sets: Any, how: Any) -> bool:
        has_data = bool(sets) if isinstance(sets, (list, dict)) else number(sets) != 0
        return has_data and str(how).lower() not in ("none", "no", "0", "false")

    on = derive(enabled, data, rhythm or default(None, NOTE))
    if on.known and on.value is False:
        # which of the two switches it off is what a person would look at
        has_data = derive(lambda sets: enabled(sets, "steps"), data).value is True
        origin = (rhythm or data).origin if has_data else data.origin
        on = Fact(False, data.status if rhythm is not None or tests is None else on.status, origin)
    facts_: Facts = {"eval.enabled": on}
    batch = settings.given("eval_batch_size")
    if batch is not None:
        facts_["eval.batch_size"] = derive(integer, batch)
    elif on.value is not False:
        facts_["eval.batch_size"] = soften(result["batch.micro_batch_size"], NOTE)
    return facts_


def loss(settings: Settings) -> Facts:
    """Cut cross entropy (a plugin, on unless switched off) and Liger's fused linear cross entropy avoid the logits."""
    plugins = settings.given("plugins")
    loaded = (
        " ".join(map(str, plugins.value)) if plugins is not None and plugins.known and isinstance(plugins.value, list) else ""
    )
    kernels = [kernel for name, kernel in _LIGER.items() if settings.on(name)]
    kernels += ["lora"] if any(settings.on(f"lora_{part}_kernel") for part in ("mlp", "qkv", "o")) else []
    result: Facts = {}
    if kernels:
        result["kernels"] = fixed(kernels, plugins.origin[0].span if plugins is not None and plugins.origin else None)
    if fuses_lora(settings):
        result["kernels"] = default([*kernels, "lora"], f"{NOTE}: LoRA kernels are on unless a lora_*_kernel says otherwise")
    liger = settings.given("liger_fused_linear_cross_entropy")
    cut = settings.given("cut_cross_entropy")
    if "CutCrossEntropy" in loaded and plugins is not None and (cut is None or settings.on("cut_cross_entropy")):
        result |= {"loss.logits": derive(lambda _: "fused", plugins),
                   "loss.kernel": derive(lambda _: "cut_cross_entropy", plugins)}  # fmt: skip
    elif "Liger" in loaded and liger is not None and settings.on("liger_fused_linear_cross_entropy"):
        result |= {"loss.logits": derive(lambda _: "fused", liger),
                   "loss.kernel": derive(lambda _: "liger_fused_linear_ce", liger)}  # fmt: skip
    elif settings.given("rl", "reward_model", "process_reward_model") is None:
        result["loss.logits"] = default("full", NOTE)
        if settings.on("flash_attn_cross_entropy"):
            result["loss.kernel"] = default("triton_ce", f"{NOTE}: flash_attn_cross_entropy")
        chunks = settings.given("chunked_cross_entropy_num_chunks")
        if settings.on("chunked_cross_entropy"):
            result["loss.num_chunks"] = derive(integer, chunks) if chunks else default(8, NOTE)
    return result


def fuses_lora(settings: Settings) -> bool:
    """Whether the LoRA kernels are switched on although nothing asks for them (`utils/schemas/config.py`,
    `check_auto_enable_lora_kernels`): not in 8 bit, with remote code, in reinforcement learning, or under FSDP1."""
    adapter = settings.given("adapter")
    stated = settings.given("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel", "rl")
    if adapter is None or adapter.value not in ("lora", "qlora") or stated is not None:
        return False
    fsdp, version = settings.given("fsdp_config", "fsdp"), settings.given("fsdp_version", "fsdp_config.fsdp_version")
    first = fsdp is not None and (version is None or str(version.value) != "2")
    eight = adapter.value == "lora" and settings.on("load_in_8bit")
    return not (first or eight or settings.on("trust_remote_code"))


def objective(settings: Settings) -> Facts:
    """`rl`, the reward models, else language modelling; a reference model for full-parameter DPO and its like."""
    method = settings.given("rl")
    for name, objective in (("reward_model", "reward"), ("process_reward_model", "prm")):
        fact = settings.given(name)
        if fact is not None and settings.on(name):
            return {"objective": derive(lambda _, value=objective: value, fact), "reference_model": default("none", NOTE)}
    if method is None:
        return {"objective": default("causal_lm", NOTE), "reference_model": default("none", NOTE)}
    adapter = settings.get("adapter", "none")
    own = settings.get("rl_adapter_ref_model", False)
    beta = settings.get("trl.beta", 0)
    precomputed = settings.on("precompute_ref_log_probs")

    def reference(rl: Any, name: Any, copy: Any, penalty: Any) -> str:
        if precomputed and rl in ("dpo", "ipo", "kto"):
            return "precomputed"
        if rl in ("orpo", "simpo") or (name not in (None, "none", "") and not boolean(copy)):
            return "none"
        return "none" if rl in ("grpo", "gdpo", "ebft") and not float(penalty) else "copy"

    return {
        "objective": derive(lambda name: _OBJECTIVES.get(str(name).lower(), str(name).lower()), method),
        "reference_model": derive(reference, method, adapter, own, beta),
    }
