from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("01-ai/Yi-6B", dtype="bfloat16", attn_implementation="flash_attention_2")
args = TrainingArguments(
    output_dir="o",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    bf16=True,
    fsdp="full_shard auto_wrap offload",
    fsdp_config={"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "activation_checkpointing": True},
    optim="adafactor",
)
trainer = Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train"))
trainer.train(resume_from_checkpoint=False)
