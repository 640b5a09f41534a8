#!/bin/bash
deepspeed --num_gpus 8 train.py \
    --model_name_or_path lmsys/vicuna-7b-v1.5 \
    --tune_mm_mlp_adapter True \
    --bf16 True --gradient_checkpointing True \
    --per_device_train_batch_size 32 --output_dir out
