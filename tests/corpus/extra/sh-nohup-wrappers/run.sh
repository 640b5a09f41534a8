#!/bin/bash
cd /workspace 2>/dev/null || true
GPUS="0,1,2,3"
N=$(echo $GPUS | tr ',' '\n' | wc -l)
ARGS=(
  --model meta-llama/Llama-3.2-3B   # base
  --bs 4
)
[[ -n "$DEBUG" ]] && ARGS+=(--bs 1)
if [ $N -gt 2 ]; then
  ARGS+=(--seq 2048)
else
  ARGS+=(--seq 512)
fi
CUDA_VISIBLE_DEVICES=$GPUS nohup conda run -n train --no-capture-output \
  python -m torch.distributed.run --nproc_per_node=$N --master_port 29501 train.py "${ARGS[@]}" > log 2>&1 &
wait
