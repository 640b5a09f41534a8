from datasets import load_dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer
from transformers import AutoModelForCausalLM, AutoTokenizer

student_id, teacher_id = "Qwen/Qwen2-0.5B-Instruct", "Qwen/Qwen2-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(student_id)
model = AutoModelForCausalLM.from_pretrained(student_id, dtype="float32")
teacher = AutoModelForCausalLM.from_pretrained(teacher_id, dtype="bfloat16")
args = GKDConfig(output_dir="gkd", per_device_train_batch_size=1, gradient_accumulation_steps=16, max_length=768)
GKDTrainer(model=model, teacher_model=teacher, args=args, processing_class=tok, train_dataset=load_dataset("trl-lib/chatbot_arena_completions")["train"]).train()
