export HF_HUB_ENABLE_HF_TRANSFER=1
ACCELERATE_CONFIG=fsdp_qlora.yaml
accelerate launch --config_file "$ACCELERATE_CONFIG" --num_machines=1 train.py --config llama.yaml --per_device_train_batch_size 2 2>&1 | tee out.log
