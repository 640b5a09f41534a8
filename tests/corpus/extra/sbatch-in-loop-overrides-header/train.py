
import argparse
from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
p = argparse.ArgumentParser()
p.add_argument("--model"); p.add_argument("--batch", type=int, default=1); p.add_argument("--zero", default=None)
a, unknown = p.parse_known_args()
Trainer(AutoModelForCausalLM.from_pretrained(a.model), TrainingArguments("o", per_device_train_batch_size=a.batch, deepspeed=a.zero, bf16=True)).train()
