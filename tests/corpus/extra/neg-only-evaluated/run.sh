python run_clm.py --model_name_or_path gpt2 --dataset_name x --do_eval --output_dir o
