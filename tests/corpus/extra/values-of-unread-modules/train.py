import settings
from conf import FLAG, ORG, MODE
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import get_peft_model, LoraConfig
model = AutoModelForCausalLM.from_pretrained(f"{ORG}/model", torch_dtype=torch.bfloat16 if settings.BF16 else torch.float32)
if settings.USE_LORA:
    model = get_peft_model(model, LoraConfig(r=settings.R))
bs = 8 if MODE == "big" else 2
ga = 16 // settings.GPUS
gc = not FLAG
ev = "steps" if MODE in ("a", "b") else "no"
Trainer(model, TrainingArguments("o", per_device_train_batch_size=bs, gradient_accumulation_steps=ga, gradient_checkpointing=gc, eval_strategy=ev, fp16=settings.X or False, optim="adafactor" if settings.N > 3 else "sgd", per_device_eval_batch_size=int(settings.E)), train_dataset=[]).train()
