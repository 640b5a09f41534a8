from transformers import Trainer, AutoModelForCausalLM, TrainingArguments
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o")).train()
