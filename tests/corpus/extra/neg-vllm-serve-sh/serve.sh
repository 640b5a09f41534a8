#!/bin/bash
# train with: torchrun train.py --bs 4
export CUDA_VISIBLE_DEVICES=0,1
vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 &
python eval.py --model x
echo "accelerate launch train.py"
cat <<'EOT'
deepspeed train.py --bs 8
EOT
