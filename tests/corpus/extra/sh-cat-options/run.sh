torchrun --nproc_per_node 2 ft.py --model_name_or_path gpt2 $(cat opts.txt) --fp16
