from datasets import load_dataset
from transformers import AutoTokenizer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from peft import LoraConfig, TaskType

BASE = "meta-llama/Llama-3.2-3B-Instruct"
SETTINGS = {
    "simpo": {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": 2.0},
    "cpo": {"beta": 0.1},
}
EXP = "simpo"
tokenizer = AutoTokenizer.from_pretrained(BASE)
args = CPOConfig(output_dir=f"out-{EXP}", per_device_train_batch_size=1, gradient_accumulation_steps=64 // 2, max_length=2_048,
                 optim="rmsprop", fp16=False, bf16=True, gradient_checkpointing_kwargs={"use_reentrant": False}, **SETTINGS[EXP])
trainer = CPOTrainer(
    model=BASE, args=args, processing_class=tokenizer,
    train_dataset=load_dataset("trl-lib/ultrafeedback_binarized", split="train"),
    peft_config=LoraConfig(r=128, lora_alpha=128, target_modules=["q_proj", "o_proj"], use_dora=True, task_type=TaskType.CAUSAL_LM))
trainer.train()
