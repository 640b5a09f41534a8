deepspeed main.py --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --zero_stage 3 --offload
