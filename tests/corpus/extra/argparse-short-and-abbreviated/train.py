from transformers import TrainingArguments, Trainer, AutoModelForCausalLM, AutoTokenizer

import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch_size", "-b", type=int, default=1)
p.add_argument("--batch_size_eval", type=int, default=1)
p.add_argument("--model", default="gpt2")
a = p.parse_args()
Trainer(model=AutoModelForCausalLM.from_pretrained(a.model), args=TrainingArguments("o", per_device_train_batch_size=a.batch_size, per_device_eval_batch_size=a.batch_size_eval, eval_strategy="steps")).train()
