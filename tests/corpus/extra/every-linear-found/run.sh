python train.py --model_name_or_path huggyllama/llama-7b --bits 4 --bf16 --per_device_train_batch_size 2 --lora_r 16
