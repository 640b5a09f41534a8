from unsloth import FastVisionModel, FastLanguageModel, is_bf16_supported
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B-bnb-4bit", max_seq_length=4096, dtype=None, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=32, target_modules=["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj","lm_head","embed_tokens"], lora_alpha=32, lora_dropout=0, use_gradient_checkpointing="unsloth", use_rslora=True)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=ds, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=60, optim="adamw_8bit", dataset_num_proc=2, packing=True, output_dir="o", bf16=is_bf16_supported(), fp16=not is_bf16_supported()))
stats = trainer.train()
