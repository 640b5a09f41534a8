"""Train one case for a few real steps and read the allocator: the only module here that imports torch.

`python -m benchmarks.measure.train` does this for one request on standard input, `{"facts", "device", "steps"}`, and prints the
reading as JSON; the loop is a plain one, which holds its outputs and its loss as such loops do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import transformers
from torch.nn import functional

from benchmarks.measure.cases import Facts, configuration

HEADS = {
    "causal_lm": transformers.AutoModelForCausalLM,
    "dpo": transformers.AutoModelForCausalLM,
    "masked_lm": transformers.AutoModelForMaskedLM,
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "token_classification": transformers.AutoModelForTokenClassification,
    "image_classification": transformers.AutoModelForImageClassification,
    "seq2seq_lm": transformers.AutoModelForSeq2SeqLM,
}
TASKS = {
    "causal_lm": "CAUSAL_LM",
    "dpo": "CAUSAL_LM",
    "sequence_classification": "SEQ_CLS",
    "token_classification": "TOKEN_CLS",
    "seq2seq_lm": "SEQ_2_SEQ_LM",
}
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")
BETA = 0.1
"""Weight of the preference loss; no byte depends on it."""

Batch = dict[str, Any]
"""The arguments of one forward call."""


class Meter:
    """Peaks of the CUDA allocator by phase, in bytes; on the CPU there is nothing to read and all stays zero."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device.startswith("cuda")
        self.allocated: dict[str, int] = {}
        self.reserved = 0

    def start(self) -> None:
        """Give back what building the model left in the cache: a run that loads its weights never had it."""
        if self.on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def read(self, phase: str) -> None:
        """End a phase: note its peak and start counting anew."""
        if not self.on_gpu:
            return
        torch.cuda.synchronize()
        self.allocated[phase] = max(self.allocated.get(phase, 0), torch.cuda.max_memory_allocated())
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()


def measure(facts: Facts, device: str, steps: int) -> dict[str, Any]:
    """Train for `steps` optimizer steps. Raises what training raises, out-of-memory errors included."""
    torch.manual_seed(0)
    meter = Meter(device)
    if meter.on_gpu:
        torch.cuda.set_device(torch.device(device).index or 0)
        torch.zeros(1, device=device)
    before = _device_readings() if meter.on_gpu else {}
    model = build(facts, device)
    reference = build({**facts, "adapter.method": "none"}, device).eval() if facts.get("reference_model") == "copy" else None
    meter.start()
    loaded = torch.cuda.memory_allocated() if meter.on_gpu else 0
    trained = [p for p in model.parameters() if p.requires_grad]
    counts = {"parameters": sum(p.numel() for p in model.parameters()), "trainable": sum(p.numel() for p in trained)}
    loss = _train(facts, device, steps, model, reference, meter)
    reading: dict[str, Any] = {**counts, "loss": loss, "versions": versions()}
    if meter.on_gpu:
        after = _device_readings()
        reading |= {
            "gpu": torch.cuda.get_device_name(),
            "gpu_bytes": torch.cuda.mem_get_info()[1],
            "allocated": max(meter.allocated.values()),
            "reserved": meter.reserved,
            "device": after.get("nvml", after["mem_get_info"]),
            "device_by": "nvml" if "nvml" in after else "mem_get_info",
            "device_readings": {"context_only": before, "at_the_end": after},
            "allocated_after_load": loaded,
            "phases": meter.allocated,
        }
    return reading


def _train(facts: Facts, device: str, steps: int, model: Any, reference: Any, meter: Meter) -> float:
    optimizer = optimizer_of(facts, model)
    # From a scale of one: an overflow would skip the step, and with it the optimizer's states.
    scaler = torch.amp.GradScaler(device.partition(":")[0], init_scale=1.0, enabled=facts["precision"] == "fp16-mixed")
    accumulated = facts["batch.gradient_accumulation_steps"]
    for _ in range(steps):
        for _ in range(accumulated):
            batch = batch_of(facts, model.config, device)
            with autocast(facts, device):
                if facts["objective"] == "dpo":
                    loss = preference_loss(model, reference, batch)
                else:
                    outputs = model(**batch)
                    loss = outputs.loss
            meter.read("forward")
            scaler.scale(loss / accumulated).backward()
            meter.read("backward")
        scaler.step(optimizer)
        scaler.update()
        meter.read("optimizer_step")
        optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def build(facts: Facts, device: str) -> Any:
    """The model with random weights on the device, quantised, adapted and checkpointed as the facts say."""
    config = configuration(facts)
    if "model.num_labels" in facts:
        config["num_labels"] = facts["model.num_labels"]
        config.pop("id2label", None)
        config.pop("label2id", None)
    if facts["objective"] == "seq2seq_lm":
        config.setdefault("decoder_start_token_id", 0)  # the model's forward asks for it; the catalogue keeps only shapes
    native = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    head, dtype = HEADS[facts["objective"]], getattr(torch, facts["model.dtype"])
    quantised = facts["quantization.method"] == "bnb_4bit"
    try:
        with torch.device(device):
            model = head.from_config(native, dtype=dtype, attn_implementation=facts["model.attention"])
        if quantised:
            _quantise(model, facts, device)
    except torch.cuda.OutOfMemoryError as error:
        if not quantised:
            raise
        raise RuntimeError("no room for the model before it is quantised, which says nothing of the run") from error
    model = model.to(device).train()
    if facts["checkpointing.enabled"]:
        model.gradient_checkpointing_enable({"use_reentrant": facts["checkpointing.use_reentrant"]})
    if facts["adapter.method"] == "lora":
        model = _adapted(model, facts)
    return model


def _quantise(model: Any, facts: Facts, device: str) -> None:
    """Replace every Linear but the head by a 4-bit one with the same weights, which are packed on their way to the device."""
    import bitsandbytes as bnb

    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not torch.nn.Linear or name in facts["quantization.skip_modules"]:
                continue
            packed = bnb.nn.Linear4bit(
                linear.in_features,
                linear.out_features,
                linear.bias is not None,
                compute_dtype=getattr(torch, facts["quantization.compute_dtype"]),
                compress_statistics=facts["quantization.double_quant"],
                quant_type=facts["quantization.quant_type"],
                device="meta",
            )
            packed.weight = bnb.nn.Params4bit(
                linear.weight.data.cpu(),
                requires_grad=False,
                compress_statistics=facts["quantization.double_quant"],
                quant_type=facts["quantization.quant_type"],
                module=packed,
            )
            packed.bias = linear.bias
            setattr(parent, name, packed.to(device))


def _adapted(model: Any, facts: Facts) -> Any:
    import peft

    model.requires_grad_(False)
    if facts["checkpointing.enabled"]:
        model.enable_input_require_grads()
    lora = peft.LoraConfig(
        r=facts["adapter.r"],
        lora_alpha=facts["adapter.alpha"],
        lora_dropout=facts["adapter.dropout"],
        target_modules=facts["adapter.target_modules"],
        task_type=TASKS[facts["objective"]],
    )
    return peft.get_peft_model(model, lora, autocast_adapter_dtype=facts["adapter.dtype"] == "float32")


def optimizer_of(facts: Facts, model: Any) -> Any:
    """The optimizer by its canonical name. 8-bit ones keep embeddings in 32 bits, as the Hugging Face Trainer asks of them."""
    trained = [p for p in model.parameters() if p.requires_grad]
    name, foreach = facts["optimizer.name"], facts["optimizer.foreach"]
    if name == "adamw_torch":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=foreach)
    if name == "adamw_torch_fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=True)
    if name == "sgd":
        return torch.optim.SGD(trained, lr=1e-5, foreach=foreach)
    if name == "adafactor":
        return transformers.Adafactor(trained, lr=1e-5, scale_parameter=False, relative_step=False)
    import bitsandbytes as bnb

    kinds = {"adamw_bnb_8bit": bnb.optim.AdamW8bit, "paged_adamw_8bit": bnb.optim.PagedAdamW8bit, "lion_8bit": bnb.optim.Lion8bit}
    made = kinds[name](trained, lr=1e-5)
    manager = bnb.optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    return made


def autocast(facts: Facts, device: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast where the precision is a mixed one."""
    kinds = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}
    dtype = kinds.get(facts["precision"])
    return torch.autocast(device.partition(":")[0], dtype) if dtype else contextlib.nullcontext()


def batch_of(facts: Facts, config: Any, device: str) -> Batch:
    """Random inputs and labels. Without packing, a batch has a mask in which the last sample is padded."""
    objective = facts["objective"]
    rows = facts["batch.micro_batch_size"] * (2 if objective == "dpo" else 1)
    length = facts["batch.sequence_length"]
    labels = torch.randint(0, facts.get("model.num_labels", 2), (rows,), device=device)
    if objective == "image_classification":
        size = facts["batch.image_size"]
        return {"pixel_values": torch.randn(rows, 3, size, size, device=device), "labels": labels}
    ids = torch.randint(2, config.vocab_size, (rows, length), device=device)
    if objective == "token_classification":
        labels = torch.randint(0, facts["model.num_labels"], (rows, length), device=device)
    elif objective == "seq2seq_lm":
        labels = torch.randint(2, config.vocab_size, (rows, facts["batch.completion_length"]), device=device)
    elif objective != "sequence_classification":
        labels = ids.clone()
    batch: Batch = {"input_ids": ids, "labels": labels}
    if not facts["batch.packing"]:
        batch["attention_mask"] = torch.ones_like(ids)
        batch["attention_mask"][-1, length // 2 :] = 0
    if objective in ("causal_lm", "dpo"):
        batch["use_cache"] = False
    return batch


def preference_loss(model: Any, reference: Any, batch: Batch) -> torch.Tensor:
    """The sigmoid loss over pairs: the first half of the rows is chosen, the second rejected.

    Without a second model the reference is the same one with its adapter off.
    """
    labels = batch.pop("labels")
    policy = _log_probabilities(model(**batch).logits, labels)
    with torch.no_grad(), contextlib.nullcontext() if reference is not None else model.disable_adapter():
        base = _log_probabilities((reference or model)(**batch).logits, labels)
    chosen, rejected = (policy - base).chunk(2)
    return -functional.logsigmoid(BETA * (chosen - rejected)).mean()


def _log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The log-probability of each row's labels, row by row as preference trainers do for 16-bit logits."""
    sums = []
    for row, wanted in zip(logits[:, :-1], labels[:, 1:], strict=True):
        sums.append(row.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).sum())
    return torch.stack(sums).float()


def _device_readings() -> dict[str, int]:
    """Bytes in use on the card: by the CUDA driver, and by NVML where its Python bindings (nvidia-ml-py) are installed.

    The driver's count leaves out what it holds back itself. The cache is never emptied during training, so the end shows the most.
    """
    free, total = torch.cuda.mem_get_info()
    readings = {"mem_get_info": int(total - free)}
    with contextlib.suppress(AttributeError, ModuleNotFoundError, RuntimeError):
        readings["nvml"] = int(torch.cuda.device_memory_used())
    return readings


def versions() -> dict[str, str]:
    """The installed versions of what decides the figures."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def outcome(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reading of one request; running out of memory and what cannot run here are outcomes, not errors."""
    try:
        return {"kind": "ran", **measure(request["facts"], request["device"], request["steps"])}
    except torch.cuda.OutOfMemoryError as error:
        _, total = torch.cuda.mem_get_info()
        text = str(error).partition("\n")[0]
        return {"kind": "oom", "why": text, "gpu": torch.cuda.get_device_name(), "gpu_bytes": total, "versions": versions()}
    except Exception as error:  # a library that is missing or refuses: the other cases go on
        return {"kind": "failed", "why": f"{type(error).__name__}: {error}", "versions": versions()}


if __name__ == "__main__":
    print(json.dumps(outcome(json.load(sys.stdin))))
