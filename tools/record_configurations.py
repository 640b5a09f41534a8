"""Records what the installed accelerate, DeepSpeed, PEFT, torchtune and litgpt make of configurations, as an oracle for the tests.

    python tools/record_configurations.py accelerate > tests/dialects/recorded/configurations/accelerate-1.15.0.json

Runs the real loaders on a CPU; run it in an environment of its own. `tests/dialects/test_recorded_configurations.py` reads the same
texts with memlint and compares. DeepSpeed wants `DS_ACCELERATOR=cpu`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

LAUNCHER = "compute_environment: LOCAL_MACHINE\nmachine_rank: 0\nmain_training_function: main\n"
ACCELERATE = [
    "distributed_type: 'NO'\nmixed_precision: fp16\nnum_machines: 1\nnum_processes: 1\n",
    "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\nmain_process_ip: a\nmain_process_port: 1\n",
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\nfsdp_config: {}\n",
    "distributed_type: FSDP\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 1\n"
    "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_offload_params: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "  fsdp_activation_checkpointing: true\n",
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 1\n"
    "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n",
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_reshard_after_forward: false\n  fsdp_offload_params: true\n",
    "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\ndeepspeed_config: {}\n",
    "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\ndeepspeed_config:\n"
    "  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n  zero3_init_flag: true\n"
    "  zero3_save_16bit_model: true\n  zero_stage: 3\n",
    "distributed_type: MULTI_GPU\nmixed_precison: bf16\nnum_machines: 1\nnum_processes: 8\n",
]

DEEPSPEED: list[dict[str, Any]] = [
    {"train_micro_batch_size_per_gpu": 4},
    {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "fp16": {"enabled": True}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "cpu_offload": True}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "offload_param": {"device": "nvme", "nvme_path": "/x"},
        "overlap_comm": False, "contiguous_gradients": False, "reduce_bucket_size": 5e7, "stage3_prefetch_bucket_size": 1e7,
        "stage3_param_persistence_threshold": 1e5, "stage3_max_live_parameters": 2e8, "stage3_max_reuse_distance": 3e8,
        "stage3_gather_16bit_weights_on_model_save": True}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
        "stage": 3, "prefetch_bucket_size": 10_000_000, "max_live_parameters": 200_000_000, "offload_param": {}}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": True},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "ofload_param": {"device": "cpu"}}},
    {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
]  # fmt: skip

PEFT: list[tuple[str, dict[str, Any]]] = [
    ("LoraConfig", {}), ("LoraConfig", {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "use_dora": True}),
    ("LoraConfig", {"target_modules": ["v_proj", "q_proj"], "lora_dropout": 0.1, "modules_to_save": ["lm_head"]}),
    ("AdaLoraConfig", {"total_step": 10}), ("IA3Config", {}), ("LoHaConfig", {}), ("LoKrConfig", {"r": 4}), ("OFTConfig", {}),
    ("VeraConfig", {}), ("HRAConfig", {}), ("MissConfig", {}), ("ShiraConfig", {}), ("RandLoraConfig", {}), ("VBLoRAConfig", {}),
    ("DeloraConfig", {}), ("GraloraConfig", {}), ("PromptTuningConfig", {"num_virtual_tokens": 20}),
]  # fmt: skip

RECIPE = (
    "model:\n  _component_: torchtune.models.llama3_1.{builder}\n{more}"
    "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n"
    "  path: tokenizer.model\n  max_seq_len: null\ndataset:\n  _component_: torchtune.datasets.alpaca_dataset\n  packed: False\n"
    "batch_size: 2\ngradient_accumulation_steps: 8\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 3e-4\n"
    "loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\nenable_activation_checkpointing: False\ndtype: bf16\n"
)
LORA = (
    "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  apply_lora_to_mlp: {mlp}\n  apply_lora_to_output: False\n"
    "  lora_rank: 8\n"
)
TORCHTUNE = [
    (RECIPE.format(builder="llama3_1_8b", more=""), []),
    (
        RECIPE.format(builder="llama3_1_8b", more=""),
        ["batch_size=4", "tokenizer.max_seq_len=2048", "dtype=fp32", "optimizer.fused=False"],
    ),
    (
        RECIPE.format(builder="lora_llama3_1_8b", more=LORA.format(mlp="True")),
        ["enable_activation_checkpointing=True", "model.lora_rank=16"],
    ),
    (
        RECIPE.format(builder="lora_llama3_1_8b", more=LORA.format(mlp="False")),
        ["~gradient_accumulation_steps", "dataset.packed=True"],
    ),
    (RECIPE.format(builder="lora_llama3_1_8b", more=LORA.format(mlp="False")), ["optimizer=bitsandbytes.optim.PagedAdamW8bit"]),
]

LITGPT = [
    ("finetune_lora", "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\n"),
    ("finetune_lora", "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\nprecision: bf16-true\nquantize: bnb.nf4-dq\nlora_r: 32\n"
     "lora_alpha: 16\nlora_mlp: true\nlora_key: true\ntrain:\n  global_batch_size: 32\n  micro_batch_size: 4\n  max_seq_length: 512\n"),
    ("finetune_full", "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\ndevices: 4\ntrain:\n  micro_batch_size: 2\n"
     "optimizer:\n  class_path: torch.optim.SGD\n  init_args: {lr: 0.1}\n"),
    ("pretrain", "model_name: pythia-160m\ntrain:\n  max_seq_length: 1024\n"),
    ("finetune_lora", "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\nlora_rnk: 4\n"),
]  # fmt: skip


def main() -> None:
    """Record one library."""
    library = sys.argv[1]
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    record: Callable[[], Iterator[dict[str, Any]]] = globals()[f"_{library}"]
    with contextlib.redirect_stdout(sys.stderr):  # where the libraries talk
        entries = ",\n".join("  " + json.dumps(entry, sort_keys=True, default=str) for entry in record())
        version = importlib.metadata.version(library).split("+")[0] if library != "deepspeed" else _deepspeed_version()
    sys.stdout.write(f'{{"library": "{library}", "version": "{version}",\n "entries": [\n{entries}\n ]}}\n')


def _file(text: str, suffix: str) -> str:
    path = Path(tempfile.mkdtemp()) / f"c{suffix}"
    path.write_text(text)
    return str(path)


def _refused(error: BaseException) -> dict[str, Any]:
    return {"refused": type(error).__name__}


def _accelerate() -> Iterator[dict[str, Any]]:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    for text in ACCELERATE:
        text = LAUNCHER + text
        try:
            parsed = launch_command_parser().parse_args(["--config_file", _file(text, ".yaml"), "train.py"])
            arguments, _, _ = _validate_launch_command(parsed)
        except ValueError as error:
            yield {"text": text, **_refused(error)}
            continue
        real = {name: getattr(arguments, name) for name in ("num_processes", "num_machines", "mixed_precision", "use_fsdp",
                "use_deepspeed", "multi_gpu", "zero_stage", "offload_optimizer_device", "offload_param_device",
                "gradient_accumulation_steps", "zero3_init_flag", "zero3_save_16bit_model")}  # fmt: skip
        if arguments.use_fsdp:
            # without a device, weights cannot be broadcast
            environment = {
                **prepare_multi_gpu_env(arguments),
                "FSDP_SYNC_MODULE_STATES": "false",
                "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
            }
            with mock.patch.dict(os.environ, environment):
                plugin = FullyShardedDataParallelPlugin()
            wrap = getattr(plugin.auto_wrap_policy, "__name__", str(plugin.auto_wrap_policy))
            real |= {"version": plugin.fsdp_version, "sharding": getattr(plugin.sharding_strategy, "name", None),
                     "reshard": getattr(plugin.reshard_after_forward, "name", plugin.reshard_after_forward), "wrap": wrap,
                     "offload": "CPUOffload" in str(plugin.cpu_offload) and "offload_params=False" not in str(plugin.cpu_offload),
                     "checkpointing": plugin.activation_checkpointing}  # fmt: skip
        yield {"text": text, "real": real}


def _deepspeed_version() -> str:
    import deepspeed

    return str(deepspeed.__version__).strip()


def _deepspeed() -> Iterator[dict[str, Any]]:
    from deepspeed.runtime.config import DeepSpeedConfig

    for config in DEEPSPEED:
        text = json.dumps(config, indent=1)
        try:
            built = DeepSpeedConfig(json.loads(text))
        except (ValueError, AssertionError, TypeError) as error:
            yield {"text": text, **_refused(error)}
            continue
        zero = json.loads(built.zero_config.model_dump_json())
        yield {"text": text, "real": {
            "micro": built.train_micro_batch_size_per_gpu, "steps": built.gradient_accumulation_steps, "zero": zero,
            "fp16": built.float16_config.enabled, "bf16": built.bfloat16_config.enabled}}  # fmt: skip


def _peft() -> Iterator[dict[str, Any]]:
    import peft

    for name, arguments in PEFT:
        config = getattr(peft, name)(**arguments).to_dict()
        kept = (
            "r",
            "init_r",
            "lora_alpha",
            "lora_dropout",
            "target_modules",
            "modules_to_save",
            "use_dora",
            "num_virtual_tokens",
        )
        real = {key: sorted(config[key]) if isinstance(config[key], set) else config[key] for key in kept if key in config}
        yield {"class": name, "arguments": arguments, "real": real}


def _torchtune() -> Iterator[dict[str, Any]]:
    import torch
    from omegaconf import OmegaConf
    from torchtune import config as tune
    from torchtune.config._parse import TuneRecipeArgumentParser
    from torchtune.config._utils import _merge_yaml_and_cli_args

    for text, overrides in TORCHTUNE:
        path = _file(text, ".yaml")
        with mock.patch.object(sys, "argv", ["recipe", "--config", path, *overrides]):
            known, extra = TuneRecipeArgumentParser().parse_known_args()
        merged = _merge_yaml_and_cli_args(known, extra)
        with torch.device("meta"):
            model = tune.instantiate(merged.model)
        adapters = {name: tuple(parameter.shape) for name, parameter in model.named_parameters() if "lora_a" in name}
        yield {"text": text, "overrides": overrides, "real": {
            "config": OmegaConf.to_container(merged, resolve=True), "parameters": sum(p.numel() for p in model.parameters()),
            "adapted": sorted({name.split(".lora_a")[0].rpartition(".")[2] for name in adapters}),
            "rank": next((shape[0] for shape in adapters.values()), None)}}  # fmt: skip


def _litgpt() -> Iterator[dict[str, Any]]:
    from jsonargparse import CLI, capture_parser, set_docstring_parse_options
    from litgpt.__main__ import PARSER_DATA

    set_docstring_parse_options(attribute_docstrings=True)
    with mock.patch.object(sys, "argv", ["litgpt"]):
        parser = capture_parser(lambda: CLI(PARSER_DATA))
    parser.exit_on_error = False
    for command, text in LITGPT:
        try:
            parsed = parser.parse_args([command, "--config", _file(text, ".yaml")])
        except Exception as error:
            yield {"command": command, "text": text, **_refused(error)}
            continue
        real = json.loads(json.dumps(parsed[command].as_dict(), default=str))
        yield {"command": command, "text": text, "real": {name: value for name, value in real.items() if name != "config"}}


if __name__ == "__main__":
    main()
