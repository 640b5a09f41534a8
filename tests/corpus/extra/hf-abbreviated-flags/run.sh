python train.py --model_name_or_path=Qwen/Qwen2.5-0.5B --per_device_train_b=4 --gradient-acc 8 --output_dir x
