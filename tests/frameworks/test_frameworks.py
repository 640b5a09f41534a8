"""Scripts of our own to facts: one case a framework or idiom, expectations read off the script by a person.

The libraries' defaults that appear here are those of the newest versions (see memlint/defaults).
"""

# ruff: noqa: E501 - embedded programs keep their lines
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import Extraction, Fact, Status, TrainingRun, fixed
from memlint.frameworks import could_train, read_script
from memlint.project import Project
from memlint.source import Kind, Source

CASES = Path(__file__).parent / "cases"


@dataclass
class Launch:
    argv: tuple[Fact, ...] = ()
    env: Mapping[str, Fact] = field(default_factory=dict)
    launcher: Mapping[str, Fact] = field(default_factory=dict)


def extraction(code: str, launch: Launch | None = None, root: Path | None = None) -> Extraction:
    path = str(root / "train.py") if root else "train.py"
    return read_script(Source(path, Kind.PYTHON, code), Project(root) if root else None, launch)


def only_run(code: str, launch: Launch | None = None, root: Path | None = None) -> TrainingRun:
    found = extraction(code, launch, root)
    assert found.errors == ()
    (run,) = found.runs
    return run


def shown(fact: Fact) -> Any:
    if fact.status is Status.UNKNOWN:
        return "?"
    return tuple(fact.choices) if fact.status is Status.CHOICES else fact.value


HEAD = """
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import *
from peft import *
from trl import SFTTrainer, SFTConfig, DPOTrainer, DPOConfig, GRPOTrainer, GRPOConfig, KTOTrainer, KTOConfig
"""

ONE_RUN: dict[str, tuple[str, dict[str, Any]]] = {
    "the trainer subclass of the script": (
        """
class Mine(Trainer):
    def __init__(self, *args, alpha=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = alpha
model = AutoModelForTokenClassification.from_pretrained("dslim/bert-base-NER", num_labels=9, dtype="float32")
Mine(model=model, args=TrainingArguments("o", per_device_train_batch_size=3), train_dataset=1, alpha=0.1).train()
""",
        {"batch.micro_batch_size": 3, "objective": "token_classification", "model.num_labels": 9, "precision": "fp32"},
    ),
    "a quantized base from another method with a regex of targets": (
        """
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", quantization_config=HqqConfig(nbits=4, group_size=64))
model = get_peft_model(model, LoraConfig(r=24, target_modules=r".*[qv]_proj", modules_to_save=["lm_head"]))
Trainer(model, TrainingArguments("o"), train_dataset=1).train()
""",
        {"quantization.method": "hqq", "quantization.group_size": 64, "adapter.target_modules": ".*[qv]_proj",
         "adapter.modules_to_save": ["lm_head"], "adapter.method": "lora", "batch.micro_batch_size": 8},
    ),
    "kbit preparation switches checkpointing on, reentrant": (
        """
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())
Trainer(model, TrainingArguments("o", fp16=True), train_dataset=1).train()
""",
        {"checkpointing.enabled": True, "checkpointing.use_reentrant": True, "model.dtype": "?", "quantization.method": "bnb_8bit"},
    ),
    "a frozen dataclass of a registry, changed through its dict": (
        """
from dataclasses import dataclass
@dataclass(frozen=True)
class Spec:
    base: str
    batch: int = 4
specs = {"small": Spec("gpt2", 3), "large": Spec("gpt2-xl", batch=1)}
spec = Spec(**{**specs["large"].__dict__, "batch": 2})
Trainer(AutoModelForCausalLM.from_pretrained(spec.base), TrainingArguments("o", per_device_train_batch_size=spec.batch)).train()
""",
        {"model.id": "gpt2-xl", "batch.micro_batch_size": 2},
    ),
    "arguments kept as far as the library's signature has them": (
        """
import dataclasses, inspect
given = dict(output_dir="o", per_device_train_batch_size=3, bf16=True, evaluation_strategy="no")
taken = inspect.signature(TrainingArguments.__init__)
if "evaluation_strategy" not in taken.parameters and "eval_strategy" in taken.parameters:
    given["eval_strategy"] = given.pop("evaluation_strategy")
given = {k: v for k, v in given.items() if k in taken.parameters}
given = {k: v for k, v in given.items() if k in {f.name for f in dataclasses.fields(TrainingArguments)}}
given = {k: v for k, v in given.items() if hasattr(TrainingArguments, k) or k in TrainingArguments.__dataclass_fields__}
trainer = {"model": AutoModelForCausalLM.from_pretrained("gpt2"), "args": TrainingArguments(**given)}
if "max_seq_length" in inspect.signature(SFTTrainer.__init__).parameters:
    trainer["max_seq_length"] = 512
SFTTrainer(**trainer).train()
""",
        {"model.id": "gpt2", "batch.micro_batch_size": 3, "precision": "bf16-mixed", "batch.sequence_length": 512, "eval.enabled": False},
    ),
    "a dataset that tokenizes where its samples are asked for": (
        """
class Texts(torch.utils.data.Dataset):
    def __init__(self, rows, tokenizer, longest):
        self.rows, self.tokenizer, self.longest = rows, tokenizer, longest
    def __getitem__(self, index):
        return self.tokenizer(self.rows[index], max_length=self.longest, truncation=True, padding="max_length")
tokenizer = AutoTokenizer.from_pretrained("gpt2")
data = Texts(load_dataset("x"), tokenizer, 384)
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=data).train()
""",
        {"batch.sequence_length": 384, "batch.pad_to_max_length": True},
    ),
    "a dataset that cuts its tokens by hand": (
        """
class Chats(torch.utils.data.Dataset):
    def __init__(self, rows, tokenizer, max_length):
        self.rows, self.tokenizer, self.max_length = rows, tokenizer, max_length
    def __getitem__(self, index):
        input_ids = self.tokenizer.apply_chat_template(self.rows[index])
        print(input_ids[:20])
        return {"input_ids": input_ids[: self.max_length]}
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(Chats([1], AutoTokenizer.from_pretrained("gpt2"), 640), batch_size=4):
    model(**batch).loss.backward()
    optimizer.step()
""",
        {"batch.sequence_length": 640, "batch.sequence_length_is_cap": True, "batch.micro_batch_size": 4},
    ),
    "a dataset that makes its samples up": (
        """
class Random(torch.utils.data.Dataset):
    def __init__(self, length):
        self.length = length
    def __getitem__(self, index):
        return {"input_ids": torch.randint(0, 50257, (self.length,), generator=None)}
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=Random(length=768)).train()
""",
        {"batch.sequence_length": 768},
    ),
    "a dataset whose samples are two parts, cut together": (
        """
def features(tokenizer, example, longest):
    prompt_ids, answer_ids = tokenizer(example["prompt"])["input_ids"], tokenizer(example["answer"])["input_ids"]
    return {"input_ids": (prompt_ids + answer_ids)[:longest], "labels": ([-100] * len(prompt_ids) + answer_ids)[:longest]}
tokenizer = AutoTokenizer.from_pretrained("gpt2")
data = [features(tokenizer, example, int("896")) for example in load_dataset("x")]
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=data).train()
""",
        {"batch.sequence_length": 896},
    ),
    "what a script asks about the installed versions": (
        """
import transformers
from importlib.metadata import version as installed
from packaging import version
key = "dtype" if int(transformers.__version__.split(".", maxsplit=1)[0]) >= 5 else "torch_dtype"
model = AutoModelForCausalLM.from_pretrained("gpt2", **{key: torch.float16})
size = 3 if version.parse(transformers.__version__) >= version.parse("4.30") else 5
steps = 3 if version.Version(installed("peft")) < version.Version("0.5.0") else 5
Trainer(model, TrainingArguments("o", per_device_train_batch_size=size, gradient_accumulation_steps=steps)).train()
""",
        {"model.dtype": "float16", "batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 5},
    ),
    "a keyword that the environment chooses": (
        """
import os
key = "dtype" if os.environ["NEW"] == "1" else "torch_dtype"
Trainer(AutoModelForCausalLM.from_pretrained("gpt2", **{key: torch.float16}), TrainingArguments("o")).train()
""",
        {"model.dtype": "float16"},
    ),
    "arguments without those that are None, some of them unknown": (
        """
import elsewhere
def compact(given):
    return {k: v for k, v in given.items() if v is not None}
given = compact({"output_dir": elsewhere.folder(), "per_device_train_batch_size": 3, "optim": elsewhere.optimizer(),
                 "gradient_accumulation_steps": None, "bf16": True})
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments(**given)).train()
""",
        {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 1, "optimizer.name": "?", "precision": "bf16-mixed"},
    ),
    "arguments that something unknown picks": (
        """
import elsewhere
given = {k: v for k, v in {"output_dir": "o", "per_device_train_batch_size": 3}.items() if elsewhere.wanted(k)}
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments(**given)).train()
""",
        {"batch.micro_batch_size": (3, 8)},
    ),
    "prompts and completions within vLLM's window, as TRL has it": (
        """
args = GRPOConfig("o", use_vllm=True, vllm_mode="colocate", vllm_max_model_length=1536, max_completion_length=512)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args, reward_funcs=[len], train_dataset=1).train()
""",
        {"batch.sequence_length": 1536, "batch.sequence_length_is_cap": True, "batch.completion_length": 512},
    ),
    "prompts and completions within vLLM's window, as unsloth has it": (
        """
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-3B-Instruct", max_seq_length=1024, fast_inference=True)
model = FastLanguageModel.get_peft_model(model, r=16)
GRPOTrainer(model=model, args=GRPOConfig("o", max_completion_length=512), reward_funcs=[len], train_dataset=1).train()
""",
        {"batch.sequence_length": 1024, "batch.sequence_length_is_cap": True, "batch.completion_length": 512},
    ),
    "no vLLM, no limit of the prompts": (
        """
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-3B-Instruct", max_seq_length=1024)
GRPOTrainer(model=model, args=GRPOConfig("o", max_completion_length=512), reward_funcs=[len], train_dataset=1).train()
""",
        {"batch.sequence_length": "?"},
    ),
    "an adapter made of a dict": (
        """
import peft
config = peft.get_peft_config(config_dict={"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 24, "target_modules": ["q_proj"]})
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), config)
Trainer(model, TrainingArguments("o"), train_dataset=1).train()
""",
        {"adapter.method": "lora", "adapter.r": 24, "adapter.target_modules": ["q_proj"]},
    ),
    "kbit preparation without checkpointing": (
        """
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
model = get_peft_model(prepare_model_for_kbit_training(model, use_gradient_checkpointing=False), LoraConfig())
Trainer(model, TrainingArguments("o", fp16=True), train_dataset=1).train()
""",
        {"checkpointing.enabled": False},
    ),
    "a capability probe chooses dtype, attention and precision together": (
        """
new = torch.cuda.get_device_capability()[0] >= 8
dtype = torch.bfloat16 if new else torch.float16
if torch.cuda.is_bf16_supported():
    bf16, fp16 = True, False
else:
    bf16, fp16 = False, True
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=dtype, attn_implementation="flash_attention_2" if new else "sdpa")
Trainer(model, TrainingArguments("o", bf16=bf16, fp16=fp16), train_dataset=1).train()
""",
        {"model.dtype": ("bfloat16", "float16"), "precision": ("bf16-mixed", "fp16-mixed"),
         "model.attention": ("flash_attention_2", "sdpa")},
    ),
    "flags that an unknown condition sets move together": (
        """
import os
brain = os.environ["CARD"] == "a100"
if brain:
    bf16, fp16 = True, False
else:
    bf16, fp16 = False, True
dtype = torch.float16 if not brain else torch.bfloat16
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=dtype)
Trainer(model, TrainingArguments("o", bf16=bf16, fp16=fp16), train_dataset=1).train()
""",
        {"precision": ("bf16-mixed", "fp16-mixed"), "model.dtype": ("bfloat16", "float16")},
    ),
    "a 4-bit configuration only in one branch": (
        """
import os
quant = BitsAndBytesConfig(load_in_4bit=True) if os.environ["Q"] == "1" else None
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=quant)
Trainer(model, TrainingArguments("o"), train_dataset=1).train()
""",
        {"quantization.method": ("bnb_4bit", "none")},
    ),
    "a keyword only in one branch has the default in the other": (
        """
import os
kwargs = {}
if os.environ["BIG"]:
    kwargs["per_device_train_batch_size"] = 32
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", **kwargs), train_dataset=1).train()
""",
        {"batch.micro_batch_size": (32, 8)},
    ),
    "unknown keyword arguments leave the arguments open": (
        """
import other
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", per_device_train_batch_size=2, **other.load()), train_dataset=1).train()
""",
        {"batch.micro_batch_size": 2, "batch.gradient_accumulation_steps": "?", "precision": "?"},
    ),
    "block size of grouped texts": (
        """
block = 512
def tokenize(rows):
    return tok(rows["text"], truncation=True, max_length=2048)
def group(rows):
    joined = {k: sum(rows[k], []) for k in rows.keys()}
    total = (len(joined["input_ids"]) // block) * block
    return {k: [t[i : i + block] for i in range(0, total, block)] for k, t in joined.items()}
data = load_dataset("imdb").map(tokenize).map(group, batched=True)
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=data).train()
""",
        {"batch.sequence_length": 512},
    ),
    "the collator of a DataLoader tokenizes": (
        """
model = AutoModelForMaskedLM.from_pretrained("bert-base-uncased", dtype=torch.float32).cuda()
loader = DataLoader(load_dataset("imdb"), batch_size=32, collate_fn=lambda rows: tok(rows, truncation=True, max_length=96))
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
""",
        {"batch.sequence_length": 96, "batch.micro_batch_size": 32, "objective": "masked_lm", "optimizer.name": "adamw_torch"},
    ),
    "a frozen backbone": (
        """
model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")
for p in model.parameters():
    p.requires_grad = False
for p in model.classifier.parameters():
    p.requires_grad = True
Trainer(model, TrainingArguments("o"), train_dataset=1).train()
""",
        {"trainable.modules": ["classifier"], "objective": "image_classification", "loss.logits": None},
    ),
    "GRPO with a reference model": (
        """
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype="bfloat16")
GRPOTrainer(model, [reward], GRPOConfig("o", beta=0.04, max_prompt_length=256, max_completion_length=512), train_dataset=1).train()
""",
        {"objective": "grpo", "reference_model": "copy", "batch.sequence_length": 768, "framework.name": "trl"},
    ),
    "with an adapter the base is the reference": (
        """
GRPOTrainer("gpt2", [reward], GRPOConfig("o", beta=0.04), train_dataset=1, peft_config=LoraConfig(r=8)).train()
""",
        {"reference_model": "none", "adapter.r": 8, "model.dtype": "float32"},
    ),
    "settings on an old SFTTrainer": (
        """
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype="bfloat16")
SFTTrainer(model, TrainingArguments("o", gradient_checkpointing=False, bf16=True), max_seq_length=1536, packing=True, train_dataset=1).train()
""",
        {"batch.sequence_length": 1536, "batch.packing": True, "checkpointing.enabled": False, "precision": "bf16-mixed"},
    ),
    "optimizers given to the trainer": (
        """
import bitsandbytes as bnb
model = AutoModelForCausalLM.from_pretrained("gpt2")
opt = bnb.optim.PagedAdamW8bit(model.parameters())
Trainer(model, TrainingArguments("o"), train_dataset=1, optimizers=(opt, None)).train()
""",
        {"optimizer.name": "paged_adamw_8bit", "optimizer.wide_embeddings": False},
    ),
    "a model that is told not to return keys and values": (
        """
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.config.use_cache = False
Trainer(model, TrainingArguments("o"), train_dataset=1).train()
""",
        {"model.use_cache": False},
    ),
    "a model that is loaded without a cache": (
        """
Trainer(AutoModelForCausalLM.from_pretrained("gpt2", use_cache=False), TrainingArguments("o"), train_dataset=1).train()
""",
        {"model.use_cache": False},
    ),
    "a model_init function": (
        """
Trainer(model_init=lambda: AutoModelForCausalLM.from_pretrained("gpt2-medium"), args=TrainingArguments("o"), train_dataset=1).train()
""",
        {"model.id": "gpt2-medium"},
    ),
    "a model from a configuration that was changed": (
        """
config = AutoConfig.from_pretrained("gpt2", n_layer=3)
config.n_head = 6
Trainer(AutoModelForCausalLM.from_config(config), TrainingArguments("o"), train_dataset=1).train()
""",
        {"model.id": "gpt2", "model.config": {"n_layer": 3, "n_head": 6}},
    ),
    "the teacher of a distillation is not what is trained": (
        """
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype=torch.bfloat16).cuda().eval()
student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype=torch.bfloat16).cuda()
opt = torch.optim.AdamW(student.parameters(), fused=True)
while True:
    for batch in DataLoader(data, batch_size=4):
        with torch.no_grad():
            target = teacher(**batch).logits
        loss = divergence(student(**batch).logits, target)
        loss.backward()
        opt.step()
""",
        {"model.id": "Qwen/Qwen2.5-0.5B", "optimizer.name": "adamw_torch_fused", "precision": "bf16-true", "reference_model": "?"},
    ),
    "fp16 autocast with a scaler and accumulation": (
        """
net = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
accum = 8
for i, batch in enumerate(DataLoader(data, batch_size=2)):
    with torch.autocast("cuda"):
        loss = net(**batch).loss / accum
    scaler.scale(loss).backward()
    if (i + 1) % accum == 0:
        scaler.step(opt)
        scaler.update()
""",
        {"precision": "fp16-mixed", "batch.gradient_accumulation_steps": 8, "optimizer.name": "sgd", "batch.micro_batch_size": 2},
    ),
    "micro batches in an inner loop": (
        """
net = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32)
opt = torch.optim.AdamW(net.parameters())
steps = 5 * 8
for it in range(1000):
    for micro in range(steps):
        (net(x).loss / steps).backward()
    opt.step()
""",
        {"batch.gradient_accumulation_steps": 40, "batch.micro_batch_size": "?"},
    ),
    "a module of the script around a backbone, checkpointed": (
        """
class Net(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.body = AutoModel.from_pretrained(name, dtype=torch.float32)
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)
net = Net("bert-base-uncased").to("cuda")
opt = torch.optim.Adam(net.parameters())
for batch in DataLoader(data, batch_size=64):
    torch.nn.functional.mse_loss(net(batch), 0).backward()
    opt.step()
""",
        {"model.id": "bert-base-uncased", "checkpointing.enabled": True, "checkpointing.use_reentrant": False, "precision": "fp32"},
    ),
    "FSDP with a policy, offload and mixed precision": (
        """
import functools
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, CPUOffload, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
net = FSDP(AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32), auto_wrap_policy=policy,
           mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), cpu_offload=CPUOffload(offload_params=True),
           sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
opt = torch.optim.AdamW(net.parameters())
for batch in DataLoader(data):
    net(**batch).loss.backward()
    opt.step()
""",
        {"parallel.strategy": "fsdp1", "parallel.wrap_policy": "size", "parallel.offload_params": "cpu", "precision": "bf16-mixed",
         "parallel.fsdp_sharding": "shard_grad_op", "batch.micro_batch_size": 1},
    ),
    "Accelerate in a function started by notebook_launcher": (
        """
from accelerate import Accelerator, notebook_launcher
def main(mixed_precision="fp16", batch_size=64):
    accelerator = Accelerator(mixed_precision=mixed_precision, gradient_accumulation_steps=2)
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased", num_labels=2)
    opt = torch.optim.AdamW(model.parameters())
    model, opt, dl = accelerator.prepare(model, opt, DataLoader(data, batch_size=batch_size))
    for epoch in range(3):
        for batch in dl:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                opt.step()
notebook_launcher(main, ("bf16", 32), num_processes=2)
""",
        {"framework.name": "accelerate", "precision": "bf16-mixed", "batch.micro_batch_size": 32, "parallel.gpus": 2,
         "batch.gradient_accumulation_steps": 2},
    ),
    "Accelerate with a DeepSpeed plugin": (
        """
from accelerate import Accelerator, DeepSpeedPlugin
plugin = DeepSpeedPlugin(zero_stage=3, offload_optimizer_device="cpu", gradient_accumulation_steps=4)
accelerator = Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16")
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype="bfloat16")
opt = torch.optim.AdamW(model.parameters())
model, opt, dl = accelerator.prepare(model, opt, DataLoader(data, batch_size=3))
for batch in dl:
    accelerator.backward(model(**batch).loss)
    opt.step()
""",
        {"parallel.strategy": "zero3", "parallel.offload_optimizer": "cpu", "batch.gradient_accumulation_steps": 4},
    ),
    "Fabric": (
        """
from lightning.fabric import Fabric
fabric = Fabric(accelerator="cuda", devices=4, strategy="ddp", precision="bf16-mixed")
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32)
opt = torch.optim.AdamW(model.parameters())
model, opt = fabric.setup(model, opt)
for i, batch in enumerate(fabric.setup_dataloaders(DataLoader(data, batch_size=5))):
    accumulating = i % 4 != 0
    fabric.backward(model(**batch).loss / 4)
    if not accumulating:
        opt.step()
""",
        {"framework.name": "lightning", "parallel.gpus": 4, "parallel.strategy": "ddp", "batch.gradient_accumulation_steps": 4,
         "precision": "bf16-mixed", "batch.micro_batch_size": 5},
    ),
    "Lightning with hyperparameters and a data module": (
        """
import pytorch_lightning as pl
class Data(pl.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.save_hyperparameters()
    def train_dataloader(self):
        return DataLoader(self.ds, batch_size=self.hparams.batch_size)
class Net(pl.LightningModule):
    def __init__(self, name, gc=False):
        super().__init__()
        self.model = AutoModelForSequenceClassification.from_pretrained(name, dtype=torch.float32)
        if gc:
            self.model.gradient_checkpointing_enable()
    def training_step(self, batch, i):
        return self.model(**batch).loss
    def configure_optimizers(self):
        return [torch.optim.AdamW(self.parameters(), fused=True)], []
pl.Trainer(devices=2, precision=16, strategy="deepspeed_stage_2", accumulate_grad_batches=4).fit(Net("roberta-base", gc=True), Data(24))
""",
        {"framework.name": "lightning", "batch.micro_batch_size": 24, "checkpointing.enabled": True, "optimizer.name": "adamw_torch_fused",
         "parallel.strategy": "zero2", "precision": "fp16-mixed", "parallel.gpus": 2, "batch.gradient_accumulation_steps": 4},
    ),
    "diffusers: only the adapted network trains": (
        """
from accelerate import Accelerator
from diffusers import AutoencoderKL, UNet2DConditionModel
acc = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=4)
unet = UNet2DConditionModel.from_pretrained("sd/v1-5", subfolder="unet")
vae = AutoencoderKL.from_pretrained("sd/vae")
vae.requires_grad_(False); unet.requires_grad_(False)
unet.add_adapter(LoraConfig(r=4, target_modules=["to_k", "to_q"]))
unet.enable_gradient_checkpointing()
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, unet.parameters()))
unet, opt, dl = acc.prepare(unet, opt, DataLoader(data, batch_size=1))
for b in dl:
    with acc.accumulate(unet):
        latents = vae.encode(b["pixels"]).latent_dist.sample()
        acc.backward(torch.nn.functional.mse_loss(unet(latents).sample, latents))
        opt.step()
""",
        {"model.id": "sd/v1-5", "adapter.r": 4, "objective": "diffusion", "checkpointing.enabled": True, "precision": "fp16-mixed"},
    ),
    "sentence-transformers": (
        """
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
model.max_seq_length = 256
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=64, fp16=True)
SentenceTransformerTrainer(model=model, args=args, train_dataset=1).train()
""",
        {"framework.name": "sentence_transformers", "batch.sequence_length": 256, "batch.micro_batch_size": 64, "precision": "fp16-mixed"},
    ),
    "timm": (
        """
import timm
model = timm.create_model("vit_large_patch16_224", pretrained=True).cuda()
model.set_grad_checkpointing(True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=256):
    torch.nn.functional.cross_entropy(model(x.cuda()), y).backward()
    opt.step()
""",
        {"model.id": "vit_large_patch16_224", "batch.micro_batch_size": 256, "checkpointing.enabled": True},
    ),
    "Unsloth in full fine-tuning": (
        """
from unsloth import FastLanguageModel
model, tok = FastLanguageModel.from_pretrained("unsloth/Qwen3-0.6B", max_seq_length=512, full_finetuning=True)
SFTTrainer(model=model, args=SFTConfig("o", max_length=512), train_dataset=1).train()
""",
        {"framework.name": "unsloth", "quantization.method": "none", "adapter.method": "none", "checkpointing.offload": True,
         "precision": ("bf16-true", "fp16-mixed")},
    ),
    "Unsloth computes the loss in chunks and packs experts": (
        """
from unsloth import FastModel
model, tok = FastModel.from_pretrained("unsloth/gpt-oss-20b", max_seq_length=1024, load_in_4bit=True)
model = FastModel.get_peft_model(model)
SFTTrainer(model=model, args=SFTConfig("o", max_length=1024), train_dataset=1).train()
""",
        {"loss.logits": "fused", "quantization.experts": True, "batch.micro_batch_size": 4, "optimizer.name": "adamw_bnb_8bit"},
    ),
    "Unsloth over float32 weights": (
        """
from unsloth import FastLanguageModel
model, tok = FastLanguageModel.from_pretrained("unsloth/Qwen3-0.6B", dtype=torch.float32, load_in_4bit=False)
model = FastLanguageModel.get_peft_model(model)
SFTTrainer(model=model, args=SFTConfig("o", max_length=512), train_dataset=1).train()
""",
        {"model.dtype": "float32", "precision": ("bf16-mixed", "fp32")},
    ),
    "settings tried in a loop are choices of one run": (
        """
for bs in [1, 2, 4]:
    Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", per_device_train_batch_size=bs), train_dataset=1).train()
""",
        {"batch.micro_batch_size": (1, 2, 4)},
    ),
    "resumed or not, it is one run": (
        """
import os
trainer = Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=1)
if os.listdir("o"):
    trainer.train(resume_from_checkpoint=True)
else:
    trainer.train()
""",
        {"model.id": "gpt2"},
    ),
    "an inline DeepSpeed configuration of the Trainer": (
        """
ds = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
args = TrainingArguments("o", per_device_train_batch_size=2, bf16=True, deepspeed=ds)
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=1).train()
""",
        {"parallel.strategy": "zero3", "parallel.offload_params": "cpu", "batch.micro_batch_size": 2, "precision": "bf16-mixed"},
    ),
    "a function that another process runs": (
        """
import torch.multiprocessing as mp
def worker(rank, world, bs):
    model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32).to(rank)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    opt = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(data, batch_size=bs):
        model(**batch).loss.backward()
        opt.step()
if __name__ == "__main__":
    mp.spawn(worker, args=(4, 16), nprocs=4)
""",
        {"parallel.strategy": "ddp", "parallel.gpus": 4, "batch.micro_batch_size": 16},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_RUN)
def test_a_script_and_its_facts(name: str) -> None:
    code, expected = ONE_RUN[name]
    run = only_run(HEAD + code)
    got = {key: shown(run.facts[key]) if key in run.facts else None for key in expected}
    assert got == expected


NO_RUN = {
    "imported only": "from transformers import Trainer\nprint(Trainer)",
    "constructed only": HEAD + "t = Trainer(AutoModelForCausalLM.from_pretrained('gpt2'), TrainingArguments('o'))\nt.evaluate()",
    "defined only": HEAD
    + "def main():\n    Trainer(AutoModelForCausalLM.from_pretrained('gpt2'), TrainingArguments('o')).train()",
    "dead": HEAD + "if False:\n    Trainer(AutoModelForCausalLM.from_pretrained('gpt2'), TrainingArguments('o')).train()",
    "after exit": HEAD
    + "import sys\nsys.exit()\nTrainer(AutoModelForCausalLM.from_pretrained('gpt2'), TrainingArguments('o')).train()",
    "one backward": HEAD + "m = AutoModelForCausalLM.from_pretrained('gpt2')\nm(x).loss.backward()",
    "a loop without a step": HEAD + "m = AutoModelForCausalLM.from_pretrained('gpt2')\nfor b in data:\n    m(b).loss.backward()",
    "generation": HEAD + "m = AutoModelForCausalLM.from_pretrained('gpt2')\nm.train(False)\nprint(m.generate(x))",
    "in a string": '"""\nTrainer(model).train()\n"""\nimport torch\n# loss.backward()',
}


@pytest.mark.parametrize("name", NO_RUN)
def test_what_trains_nothing_is_no_run(name: str) -> None:
    found = extraction(NO_RUN[name])
    assert found.errors == ()
    assert found.runs == ()


def test_two_calls_of_a_function_are_two_runs_in_order() -> None:
    code = (
        HEAD
        + """
def tune(name, bs):
    Trainer(AutoModelForCausalLM.from_pretrained(name), TrainingArguments("o", per_device_train_batch_size=bs), train_dataset=1).train()
tune("gpt2", 4)
tune("gpt2-xl", 1)
"""
    )
    runs = extraction(code).runs
    assert [(run.value("model.id"), run.value("batch.micro_batch_size")) for run in runs] == [("gpt2", 4), ("gpt2-xl", 1)]


def test_a_loop_with_two_losses_is_one_run() -> None:
    code = (
        HEAD
        + """
class Critic(torch.nn.Module):
    def forward(self, x):
        return x
critic = Critic()
gen = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32)
a, b = torch.optim.AdamW(gen.parameters()), torch.optim.SGD(critic.parameters())
for batch in DataLoader(data, batch_size=4):
    critic(batch).mean().backward()
    b.step()
    gen(**batch).loss.backward()
    a.step()
"""
    )
    run = only_run(code)
    assert (run.value("model.id"), run.value("optimizer.name")) == ("gpt2", "adamw_torch")


def test_a_run_behind_a_switch_that_is_off_by_default_is_found() -> None:
    code = (
        HEAD
        + """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--do_train", action="store_true")
a = p.parse_args()
t = Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=1)
if a.do_train:
    t.train()
"""
    )
    assert len(extraction(code).runs) == 1
    assert len(extraction(code, Launch((fixed("--do_train"),))).runs) == 1


def test_setting_the_old_checkpointing_name_on_the_object_does_nothing_from_5_13_on(tmp_path: Path) -> None:
    """transformers 5.13 made `gradient_checkpointing` an alias that only `__post_init__` reads; in 4.x it is the attribute itself."""
    code = (
        HEAD
        + """
args = TrainingArguments("o")
args.gradient_checkpointing = True
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=1).train()
"""
    )
    assert only_run(code).value("checkpointing.enabled") is False
    (tmp_path / "requirements.txt").write_text("transformers==4.46.3\n", encoding="utf-8")
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    pinned = only_run(code, root=tmp_path)
    assert pinned.value("checkpointing.enabled") is True
    assert pinned.value("framework.versions") == {"transformers": "4.46.3"}  # estimates go by them


def test_sites_are_the_calls_and_origins_the_tokens() -> None:
    code = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
BATCH = 4
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.bfloat16)
args = TrainingArguments("o", per_device_train_batch_size=BATCH, bf16=True)
Trainer(model=model, args=args, train_dataset=1).train()
"""
    run = only_run(code)
    sites = {site.dialect: (site.kind, site.span.line, site.span.column, site.span.end_column) for site in run.sites}
    assert sites["hf_arguments"] == (
        "python",
        5,
        8,
        len('args = TrainingArguments("o", per_device_train_batch_size=BATCH, bf16=True)') + 1,
    )
    assert sites["from_pretrained"][:2] == ("python", 4)
    origin = run.facts["batch.micro_batch_size"].origin
    assert [(o.span.line, o.span.column) for o in origin if o.span] == [(3, 9), (5, 59)]
    assert (run.span.line, run.span.column) == (6, 1)


def test_fp16_and_bf16_together_are_a_problem() -> None:
    code = (
        HEAD
        + 'Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", fp16=True, bf16=True), train_dataset=1).train()'
    )
    assert [problem.name for problem in only_run(code).problems] == ["fp16-and-bf16-both"]


def test_damaged_scripts_are_read_or_refused_but_never_crash() -> None:
    """Lines lost, swapped and cut at random (seeded), over every script of the corpus and of this file."""
    chance = random.Random(5)
    corpus = Path(__file__).resolve().parents[1] / "corpus" / "extraction" / "scripts"
    texts = [HEAD + code for code, _ in ONE_RUN.values()]
    texts += [p.read_text(encoding="utf-8", errors="replace") for p in corpus.rglob("*.py") if p.stat().st_size < 20_000]
    for text in texts * 4:
        lines = text.split("\n")
        for _ in range(chance.randint(1, 4)):
            a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
            kind = chance.random()
            if kind < 0.4:
                lines[a] = ""
            elif kind < 0.7:
                lines[a], lines[b] = lines[b], lines[a]
            else:
                lines[a] = lines[a][: chance.randint(0, len(lines[a]))]
        found = extraction("\n".join(lines))
        assert all(error.message for error in found.errors)


def test_the_prefilter_lets_every_case_through() -> None:
    assert all(could_train(HEAD + code) for code, _ in ONE_RUN.values())
    assert not could_train("import torch\nprint(torch.__version__)")
    assert not could_train("x = 1")


PARALLEL = """
from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
config = ParallelismConfig(dp_shard_size=2, tp_size=2, cp_size=4)
accelerator = Accelerator(mixed_precision="bf16", parallelism_config=config)
model = AutoModelForCausalLM.from_pretrained("gpt2", tp_plan="auto")
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=1))
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
"""
ULYSSES = """
from accelerate.utils import ParallelismConfig
args = TrainingArguments("o", parallelism_config=ParallelismConfig(sp_backend="deepspeed", sp_size=4))
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=1).train()
"""


def test_a_parallelism_config_of_an_accelerator_or_of_training_arguments() -> None:
    """accelerate 1.15 `parallelism_config.py`; `tp_plan` is transformers' own."""
    run = only_run(HEAD + PARALLEL)
    degrees = ("parallel.data_shard", "parallel.tensor", "parallel.context", "parallel.tensor_plan", "parallel.context_comm")
    assert [run.value(key) for key in degrees] == [2, 2, 4, "auto", None]
    assert [only_run(HEAD + ULYSSES).value(key) for key in degrees] == [None, None, 4, None, "a2a"]


WRAPPED = """
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel as FSDP
model = FSDP(AutoModelForCausalLM.from_pretrained("gpt2"), backward_prefetch=BackwardPrefetch.BACKWARD_POST,
             limit_all_gathers=False, use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(data, batch_size=1):
    model(**batch).loss.backward()
    optimizer.step()
"""


def test_what_a_wrapped_model_says_about_gathering() -> None:
    run = only_run(HEAD + WRAPPED)
    keys = ("parallel.strategy", "parallel.backward_prefetch", "parallel.limit_all_gathers", "parallel.use_orig_params")
    assert [run.value(key) for key in keys] == ["fsdp1", "backward_post", False, True]
