from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=4, evaluation_strategy="no", fp16=True)
args.gradient_checkpointing = True
Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()
