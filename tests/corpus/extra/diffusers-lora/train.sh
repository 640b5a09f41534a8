export MODEL_NAME="stable-diffusion-v1-5/stable-diffusion-v1-5"
accelerate launch --mixed_precision="fp16" train_lora.py --pretrained_model_name_or_path=$MODEL_NAME --train_batch_size=1 \
  --gradient_accumulation_steps=4 --gradient_checkpointing --rank 8
