import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", dtype=torch.bfloat16)
model = PeftModel.from_pretrained(base, "my/sft-adapter", is_trainable=True, adapter_name="train")
model.load_adapter("my/sft-adapter", adapter_name="reference")
args = DPOConfig("o", model_adapter_name="train", ref_adapter_name="reference", per_device_train_batch_size=2, max_length=1024, bf16=True)
DPOTrainer(model=model, args=args, train_dataset=load_dataset("trl-lib/ultrafeedback_binarized", split="train")).train()
