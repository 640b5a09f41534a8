import torch
from datasets import load_dataset
from peft import PrefixTuningConfig, TaskType, VeraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, Trainer, TrainingArguments


def run(model, config, bs):
    model = get_peft_model(model, config)
    args = TrainingArguments("o", per_device_train_batch_size=bs, bf16=True)
    Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()


run(AutoModelForSeq2SeqLM.from_pretrained("t5-large", dtype=torch.float32), PrefixTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=20), 8)
run(AutoModelForCausalLM.from_pretrained("gpt2-large", dtype=torch.bfloat16), VeraConfig(r=256, target_modules=["c_attn"]), bs=4)
