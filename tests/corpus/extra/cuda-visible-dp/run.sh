CUDA_VISIBLE_DEVICES=0,1,3 \
  python train.py \
  --fp16 \
  --per_device_train_batch_size 10 \
  # --gradient_checkpointing \
  --output_dir /tmp/o
