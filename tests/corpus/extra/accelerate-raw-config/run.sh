accelerate launch --num_processes=1 --mixed_precision=bf16 train.py \
  --model_name_or_path=bert-base-cased \
  --per_device_train_batch_size=${BATCH:-32} --gradient_accumulation_steps 2 \
  --max_length 256 --pad_to_max_length
