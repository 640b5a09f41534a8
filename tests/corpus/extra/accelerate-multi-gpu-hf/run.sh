accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank $RANK --mixed_precision fp16 \
  --main_process_ip 10.0.0.1 \
  -m pkg.train --bs 3
