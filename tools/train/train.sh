#!/bin/bash
# Makes the built-in model anew: data, training (hours on two cores), the GGUF file, the held-out questions, the curve.
# tools/train/train.sh [WORK_FOLDER]; stop it when you like, it goes on where it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "${1:-$here/work}")
mkdir -p "$work"
[ -d "$work/venv" ] || { python3 -m venv "$work/venv"; "$work/venv/bin/pip" install -q -r "$here/requirements.txt"; }
python=$work/venv/bin/python
. "$here/train.env"
cd "$here"
[ -f "$work/data/vocabulary.json" ] || "$python" generate.py "$work/data" --seed 1 --shards 16 --conversations 400000
"$python" train.py "$work/data" "$work/first" --seed 1 --steps "${STEPS:-8000}"
# What is hardest is learnt on: which tool fits, and taking away.
[ -f "$work/tools/vocabulary.json" ] ||
  "$python" generate.py "$work/tools" --seed 2 --shards 8 --conversations 120000 --mix tools --vocabulary "$work/data/vocabulary.json"
"$python" train.py "$work/tools" "$work/second" --seed 2 --steps "${MORE_STEPS:-1800}" --after "$work/first/checkpoint.pt" --rate 0.5 --decay 0.8
[ -f "$work/sums/vocabulary.json" ] ||
  "$python" generate.py "$work/sums" --seed 3 --shards 4 --conversations 60000 --mix sums --vocabulary "$work/data/vocabulary.json"
"$python" train.py "$work/sums" "$work/third" --seed 3 --steps 600 --after "$work/second/checkpoint.pt" --rate 0.4 --decay 0.85
"$python" average.py "$work/first/checkpoint.pt" "$work/third/checkpoint.pt" 0.85 "$work/checkpoint.pt"
"$python" export.py "$work/checkpoint.pt" "$work/data" "$work/millrace-mini.gguf"
"$python" held_out.py "$work/data" "$work/held-out.jsonl"
"$python" curve.py "$work/first/log.jsonl" "$work/loss.svg"
echo "To take it: cp $work/millrace-mini.gguf crates/millrace/mini/; then millrace eval $work/held-out.jsonl"
