ACCELERATE_LOG_LEVEL=info accelerate launch \
    --config_file=zero2.yaml --num_processes 2 \
    -- sft.py --config sft.yaml --max_length 4096 --attn_implementation flash_attention_2
