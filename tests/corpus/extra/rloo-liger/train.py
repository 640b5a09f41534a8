from datasets import load_dataset
from peft import LoraConfig
from trl import RLOOConfig, RLOOTrainer

trainer = RLOOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs="weqweasdas/RM-Gemma-2B",
    args=RLOOConfig(output_dir="o", per_device_train_batch_size=4, num_generations=4, gradient_accumulation_steps=8, bf16=True,
                    model_init_kwargs={"dtype": "bfloat16"}, use_vllm=True, vllm_mode="server", optim="adamw_8bit"),
    train_dataset=load_dataset("trl-lib/ultrafeedback-prompt", split="train"),
    peft_config=LoraConfig(r=8, lora_alpha=32, task_type="CAUSAL_LM"),
)
trainer.train()
