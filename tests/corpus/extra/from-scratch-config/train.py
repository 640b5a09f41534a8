import torch
from datasets import load_dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

context_length = 128
tokenizer = AutoTokenizer.from_pretrained("huggingface-course/code-search-net-tokenizer")
config = AutoConfig.from_pretrained("gpt2", n_ctx=context_length, n_layer=6, bos_token_id=1)
config.n_head = 8
model = AutoModelForCausalLM.from_config(config)


def tokenize(element):
    return tokenizer(element["content"], truncation=True, max_length=context_length, return_overflowing_tokens=True, return_length=True)


ds = load_dataset("huggingface-course/codeparrot-ds-train", split="train").map(tokenize, batched=True)
tokenizer.pad_token = tokenizer.eos_token
args = TrainingArguments("codeparrot-ds", per_device_train_batch_size=32, gradient_accumulation_steps=8, fp16=True)
Trainer(model=model, processing_class=tokenizer, args=args, data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False), train_dataset=ds).train()
