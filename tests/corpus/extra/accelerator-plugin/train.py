import torch
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

set_seed(1)
plugin = DeepSpeedPlugin(zero_stage=3, gradient_accumulation_steps=4, offload_optimizer_device="cpu", offload_param_device="none")
accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=plugin)
tokenizer = AutoTokenizer.from_pretrained("bigscience/bloomz-7b1")
model = AutoModelForCausalLM.from_pretrained("bigscience/bloomz-7b1", dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.2, modules_to_save=["lm_head"]))


def collate(rows):
    return tokenizer([r["text"] for r in rows], truncation=True, max_length=512, padding="longest", return_tensors="pt")


loader = DataLoader(load_dataset("imdb", split="train"), shuffle=True, collate_fn=collate, batch_size=8, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, loader, optimizer = accelerator.prepare(model, loader, optimizer)
for _ in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch, labels=batch["input_ids"]).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
