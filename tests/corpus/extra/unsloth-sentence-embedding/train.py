from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from unsloth import FastSentenceTransformer

model = FastSentenceTransformer.from_pretrained(model_name="unsloth/bge-m3", max_seq_length=512, full_finetuning=False)
model = FastSentenceTransformer.get_peft_model(model, r=32, target_modules=["key", "query", "dense", "value"], lora_alpha=64)
trainer = SentenceTransformerTrainer(
    model=model,
    train_dataset=train_set,
    loss=MultipleNegativesRankingLoss(model),
    args=SentenceTransformerTrainingArguments(output_dir="o", per_device_train_batch_size=128, bf16=True, max_steps=30),
)
trainer.train()
