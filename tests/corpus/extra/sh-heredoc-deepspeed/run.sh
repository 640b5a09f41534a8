#!/usr/bin/env bash
STAGE=${STAGE:-3}
cat > ds.json <<EOF
{
  "zero_optimization": {"stage": $STAGE, "offload_optimizer": {"device": "cpu"}},
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
EOF
deepspeed --num_gpus=4 sft.py \
    --model_name_or_path meta-llama/Meta-Llama-3-8B \
    --per_device_train_batch_size 2 \
    `# --gradient_accumulation_steps 16` \
    --gradient_accumulation_steps 4 \
    --bf16 True --gradient_checkpointing True \
    --output_dir out --deepspeed ds.json
