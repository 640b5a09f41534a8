import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", dtype=torch.float16, device_map="cpu")
model = PeftModel.from_pretrained(base, "out/checkpoint-100")
model.train(False)
model = model.merge_and_unload()
model.save_pretrained("merged")
optimizer = torch.optim.AdamW(model.parameters())  # left over
