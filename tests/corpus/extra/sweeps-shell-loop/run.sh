for bs in 2 4; do
  for m in gpt2 gpt2-medium
  do
    python train.py --model $m --bs "$bs" || exit 1
  done
done
