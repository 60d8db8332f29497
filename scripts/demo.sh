#!/usr/bin/env bash
# `make demo`: trains a real model on real data, kills a worker and adds two.
# Needs `make build`.
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

# Waits until the event log has `$1` lines that match `$2`.
wait_for_events() {
  until [ "$(grep -sE "$2" "$out/events.jsonl" | wc -l)" -ge "$1" ]; do
    kill -0 $train 2>/dev/null || return 0
    sleep 0.2
  done
}

echo
echo "== training: a master and two workers on this machine, two epochs;"
echo "   one worker will be killed, then two more are added"
"$bin/elasticdl" train \
  --job_name=$job \
  --distribution_strategy=AllreduceStrategy \
  --num_workers=2 \
  --model_zoo=examples \
  --model_def=mnist.mnist_functional_api.custom_model \
  --training_data="$data/train" \
  --validation_data="$data/test" \
  --num_epochs=2 \
  --minibatch_size=32 \
  --evaluation_steps=500 \
  --checkpoint_dir="$out/checkpoints" \
  --checkpoint_steps=500 \
  --output="$out/model" \
  --event_log="$out/events.jsonl" \
  --ledger_audit="$out/ledger.jsonl" &
train=$!
# Stop the job when the script exits, for whatever reason.
trap 'kill $train 2>/dev/null || true' EXIT

wait_for_events 1 '"event":"evaluation"'
victim=$("$bin/elasticdl" top --job_name=$job --json 2>/dev/null |
  grep -o '"pid":[0-9]*,"state":"Running"' | head -n 1 | grep -o '[0-9]*' || true)
if [ -n "$victim" ]; then
  echo "== kill -9 $victim (a worker)"
  kill -9 "$victim" 2>/dev/null || true
  wait_for_events 3 '"event":"worker_ready"'
  echo "== elasticdl scale --job_name=$job --num_workers=4"
  "$bin/elasticdl" scale --job_name=$job --num_workers=4 || true
fi
wait $train
trap - EXIT

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
# Each record of both epochs must be in the model exactly once.
exact=0
ledger=$("$bin/elasticdl" audit --epochs=2 --records=60000 "$out/ledger.jsonl") || exact=$?
trained=$(last_accuracy "$out/events.jsonl")
evaluated=$(last_accuracy "$out/evaluate.jsonl")
echo
echo "== accuracy on the 10,000 test images: $trained after training," \
  "$evaluated from the checkpoint"
echo "   ledger:      $(tail -n 1 <<< "$ledger")"
echo "   worlds:      $(grep -c '"event":"world"' "$out/events.jsonl")," \
  "see $out/events.jsonl"
echo "   model:       $out/model (model.pt for libtorch, state_dict.pt for Python)"
echo "   checkpoints: $out/checkpoints"
echo "   events:      $out/events.jsonl; committed records: $out/ledger.jsonl"
[ "$trained" = "$evaluated" ] && [ "$exact" = 0 ]
