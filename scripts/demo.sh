#!/usr/bin/env bash
# `make demo`: real data, a real model, the real programs. Needs `make build`.
#   DATA_DIR  where the data set is kept (default ~/.cache/elasticdl/data)
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/bin
data=${DATA_DIR:-$HOME/.cache/elasticdl/data}/mnist
out=$PWD/demo
job=demo

echo "== MNIST (60,000 images) in $data"
"$bin/elasticdl" data fetch mnist --output="$data"

rm -rf "$out"
mkdir -p "$out"
echo
echo "== training: a master and a worker on this machine, two epochs"
"$bin/elasticdl" train \
  --job_name=$job \
  --distribution_strategy=Local \
  --model_zoo=examples \
  --model_def=mnist.mnist_functional_api.custom_model \
  --training_data="$data/train" \
  --validation_data="$data/test" \
  --num_epochs=2 \
  --minibatch_size=64 \
  --evaluation_steps=500 \
  --checkpoint_dir="$out/checkpoints" \
  --checkpoint_steps=500 \
  --output="$out/model" \
  --event_log="$out/events.jsonl" \
  --ledger_audit="$out/ledger.jsonl"

echo
echo "== evaluating the last checkpoint"
"$bin/elasticdl" evaluate \
  --job_name=$job-evaluate \
  --num_workers=1 \
  --model_zoo=examples \
  --model_def=mnist.mnist_functional_api.custom_model \
  --validation_data="$data/test" \
  --checkpoint_dir_for_init="$out/checkpoints" \
  --event_log="$out/evaluate.jsonl"

last_accuracy() {
  grep '"event":"evaluation"' "$1" | tail -n 1 |
    sed 's/.*"accuracy":\([0-9.eE+-]*\).*/\1/'
}
trained=$(last_accuracy "$out/events.jsonl")
evaluated=$(last_accuracy "$out/evaluate.jsonl")
echo
echo "== accuracy on the 10,000 test images: $trained after training," \
  "$evaluated from the checkpoint"
echo "   model:       $out/model (model.pt for libtorch, state_dict.pt for Python)"
echo "   checkpoints: $out/checkpoints"
echo "   events:      $out/events.jsonl; committed records: $out/ledger.jsonl"
[ "$trained" = "$evaluated" ]
