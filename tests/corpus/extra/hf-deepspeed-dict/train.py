import torch
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

DS = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "overlap_comm": True},
    "gradient_accumulation_steps": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
}
model = AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-xxl", dtype=torch.bfloat16)
args = Seq2SeqTrainingArguments("o", bf16=True, per_device_train_batch_size=8, gradient_checkpointing=True, deepspeed=DS,
                                gradient_checkpointing_kwargs={"use_reentrant": True})
Seq2SeqTrainer(model=model, args=args, train_dataset=load_dataset("cnn_dailymail", "3.0.0", split="train")).train()
