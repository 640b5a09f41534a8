from cli import build
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

opts, _ = build().parse_known_args()
model = AutoModelForCausalLM.from_pretrained(
    opts.model_path, quantization_config=BitsAndBytesConfig(load_in_8bit=opts.load_in_8bit), device_map="auto")
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=opts.grad_ckpt)
model = get_peft_model(model, LoraConfig(r=8, target_modules=["query_key_value"], task_type="CAUSAL_LM"))
args = TrainingArguments("o", per_device_train_batch_size=opts.batch_size, fp16=True, optim="adamw_torch")
Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()
