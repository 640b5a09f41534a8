import bitsandbytes as bnb
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, get_cosine_schedule_with_warmup

model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-1.4b-deduped", torch_dtype=torch.float32)
optim = bnb.optim.Adam8bit(model.parameters(), lr=1e-5)
sched = get_cosine_schedule_with_warmup(optim, 10, 100)
args = TrainingArguments("o", per_device_train_batch_size=7, max_steps=100, no_cuda=False)
Trainer(model, args, train_dataset=load_dataset("imdb", split="train"), optimizers=(optim, sched)).train()
