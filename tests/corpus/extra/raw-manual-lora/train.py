import torch
import bitsandbytes as bnb
from peft import LoraConfig, TaskType, get_peft_model, prepare_model_for_kbit_training
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, DataCollatorForSeq2Seq

import ds


def build():
    q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16", bnb_4bit_quant_type="nf4")
    m = AutoModelForCausalLM.from_pretrained("microsoft/phi-2", quantization_config=q, device_map="cuda:0")
    m = prepare_model_for_kbit_training(m, use_gradient_checkpointing=False)
    m = get_peft_model(m, LoraConfig(TaskType.CAUSAL_LM, r=24, lora_alpha=48, target_modules=["q_proj", "k_proj", "v_proj", "dense"]))
    m.print_trainable_parameters()
    return m


def train(model, loader, *, epochs=1, accumulate=1):
    optim = bnb.optim.PagedAdamW8bit(filter(lambda p: p.requires_grad, model.parameters()), lr=2e-4)
    sched = CosineAnnealingLR(optim, T_max=100)
    it = 0
    for _ in range(epochs):
        for batch in loader:
            batch = batch.to("cuda")
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss = loss / accumulate
            loss.backward()
            it += 1
            if it % accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
                optim.step()
                sched.step()
                optim.zero_grad(set_to_none=True)


if __name__ == "__main__":
    train(build(), DataLoader(ds.Instruct(max_len=1024), batch_size=2, shuffle=True), accumulate=16)
