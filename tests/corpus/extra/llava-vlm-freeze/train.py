import torch
from datasets import load_dataset
from transformers import AutoProcessor, LlavaForConditionalGeneration, Trainer, TrainingArguments

MODEL_ID = "llava-hf/llava-1.5-7b-hf"
processor = AutoProcessor.from_pretrained(MODEL_ID)


class Collate:
    max_length = 1024

    def __init__(self, processor):
        self.processor = processor

    def __call__(self, examples):
        texts = [e["text"] for e in examples]
        batch = self.processor(text=texts, images=[e["image"] for e in examples], return_tensors="pt", padding=True, truncation=True,
                               max_length=self.max_length)
        batch["labels"] = batch["input_ids"].clone()
        return batch


model = LlavaForConditionalGeneration.from_pretrained(MODEL_ID, dtype=torch.bfloat16, low_cpu_mem_usage=True)
for name, param in model.named_parameters():
    if "vision_tower" in name:
        param.requires_grad = False
args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=4, bf16=True, remove_unused_columns=False,
                         gradient_checkpointing=True, optim="adamw_bnb_8bit", dataloader_num_workers=4)
Trainer(model=model, args=args, data_collator=Collate(processor), train_dataset=load_dataset("x/y", split="train")).train()
