from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from sentence_transformers.training_args import BatchSamplers

model = SentenceTransformer("microsoft/mpnet-base")
model.max_seq_length = 256
train = load_dataset("sentence-transformers/all-nli", "triplet", split="train")
loss = MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments(
    output_dir="models/mpnet",
    num_train_epochs=1,
    per_device_train_batch_size=64,
    fp16=False,
    bf16=True,
    batch_sampler=BatchSamplers.NO_DUPLICATES,
    eval_strategy="steps",
    eval_steps=100,
)
trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=train, eval_dataset=train.select(range(100)), loss=loss)
trainer.train()
