import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

base = AutoModelForCausalLM.from_pretrained("teknium/OpenHermes-2.5-Mistral-7B", torch_dtype=torch.float16, load_in_4bit=True)
cfg = LoraConfig(r=16, lora_alpha=16, lora_dropout=0.05, target_modules=["k_proj", "gate_proj", "v_proj"], task_type="CAUSAL_LM")
trainer = DPOTrainer(
    base,
    ref_model=None,
    args=DPOConfig(output_dir="o", per_device_train_batch_size=4, gradient_accumulation_steps=4, max_length=1536,
                   optim="paged_adamw_32bit", bf16=True, loss_type="ipo", report_to="none"),
    train_dataset=load_dataset("mlabonne/chatml_dpo_pairs")["train"],
    peft_config=cfg,
)
trainer.train()
