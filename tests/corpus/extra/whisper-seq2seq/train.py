from dataclasses import dataclass
from typing import Any

from datasets import load_dataset
from transformers import (Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperForConditionalGeneration, WhisperProcessor)

processor = WhisperProcessor.from_pretrained("openai/whisper-small", language="Hindi", task="transcribe")
model = WhisperForConditionalGeneration.from_pretrained("openai/whisper-small", dtype="float32")
model.freeze_encoder()


@dataclass
class Collator:
    processor: Any

    def __call__(self, features):
        return self.processor.tokenizer.pad(features, return_tensors="pt")


training_args = Seq2SeqTrainingArguments(
    output_dir="./whisper-small-hi", per_device_train_batch_size=16, gradient_accumulation_steps=1, warmup_steps=500,
    max_steps=4000, gradient_checkpointing=True, fp16=True, eval_strategy="steps", per_device_eval_batch_size=8,
    predict_with_generate=True, generation_max_length=225)
cv = load_dataset("mozilla-foundation/common_voice_11_0", "hi")
trainer = Seq2SeqTrainer(args=training_args, model=model, train_dataset=cv["train"], eval_dataset=cv["test"],
                         data_collator=Collator(processor), processing_class=processor.feature_extractor)
trainer.train()
