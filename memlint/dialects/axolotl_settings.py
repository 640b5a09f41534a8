"""The settings of an Axolotl configuration over its defaults, and the combinations that its schema refuses.

Read at axolotl 067b021c8b, `utils/schemas/{validation,peft}.py`.
"""

from __future__ import annotations

from memlint.dialects.derive import Native, given
from memlint.facts import Fact, Problem, default
from memlint.typed import Any

NOTE = "axolotl 067b021c8b default"


class Settings:
    """The given values over Axolotl's own defaults."""

    def __init__(self, native: Native) -> None:
        self.native = native

    def given(self, *names_: str) -> Fact | None:
        """The first of these options that the file gives, or None."""
        return given(self.native, *names_)

    def get(self, name: str, otherwise: Any) -> Fact:
        """The value, or Axolotl's default."""
        return given(self.native, name) or default(otherwise, NOTE)

    def on(self, name: str) -> bool:
        """Whether a switch is certainly on."""
        fact = given(self.native, name)
        return fact is not None and fact.known and str(fact.value).lower() in ("true", "1", "yes")


def refused(settings: Settings) -> tuple[Problem, ...]:
    """What the schema refuses (`utils/schemas/validation.py`)."""
    found: list[Problem] = []

    def refuse(name: str, message: str, *keys: str) -> None:
        facts_ = [fact for fact in (settings.given(key) for key in keys) if fact is not None]
        spans = [fact.origin[0].span for fact in facts_ if fact.origin and fact.origin[0].span is not None]
        if spans:
            found.append(Problem(name, message, spans[0], tuple(spans[1:])))

    adapter = settings.given("adapter")
    for key in ("load_in_4bit", "load_in_8bit"):
        if settings.on(key) and adapter is None and not settings.on("relora"):
            refuse("four-bit-without-adapter", f"{key} without an adapter: Axolotl refuses to train quantized weights", key)
    if adapter is not None and adapter.value == "lora" and settings.on("load_in_4bit"):
        refuse(
            "four-bit-without-effect",
            "load_in_4bit has no effect with adapter: lora; set adapter: qlora",
            "load_in_4bit",
            "adapter",
        )
    if adapter is not None and adapter.value == "qlora" and settings.on("load_in_8bit"):
        refuse("qlora-in-8-bit", "adapter: qlora needs load_in_4bit, not load_in_8bit", "load_in_8bit", "adapter")
    elif adapter is not None and adapter.value == "qlora" and settings.given("load_in_4bit", "gptq") is None:
        refuse("four-bit-needs-qlora", "adapter: qlora requires load_in_4bit: true", "adapter")
    if settings.on("fp16") and settings.on("bf16"):
        refuse("fp16-and-bf16-both", "fp16 and bf16 are both on: bf16 wins, fp16 has no effect", "fp16", "bf16")
    engines = [settings.given("deepspeed"), settings.given("fsdp", "fsdp_config")]
    if all(engine is not None and engine.known and engine.value for engine in engines):
        refuse("deepspeed-and-fsdp", "deepspeed and fsdp cannot be used together", "deepspeed", "fsdp_config", "fsdp")
    if settings.given("batch_size") is not None and settings.given("gradient_accumulation_steps") is not None:
        refuse("batch-size-twice", "set only one of gradient_accumulation_steps and batch_size", "batch_size",
               "gradient_accumulation_steps")  # fmt: skip
    if settings.on("sample_packing") and settings.given("rl") is not None:
        refuse("packing-with-rl", "sample_packing does not work with rl", "sample_packing", "rl")
    offload = settings.given("activation_offloading")
    if offload is not None and offload.known and offload.value and settings.get("gradient_checkpointing", False).value is False:
        refuse("offload-without-checkpointing", "activation_offloading requires gradient_checkpointing", "activation_offloading")
    return tuple(found)
