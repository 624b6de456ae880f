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
"$python" train.py "$work/data" "$work/run" --seed 1 --steps "${STEPS:-6000}"
"$python" export.py "$work/run/checkpoint.pt" "$work/data" "$work/millrace-mini.gguf"
"$python" held_out.py "$work/data" "$work/held-out.jsonl"
"$python" curve.py "$work/run/log.jsonl" "$work/loss.svg"
echo "To take it: cp $work/millrace-mini.gguf crates/millrace/mini/; then millrace eval $work/held-out.jsonl"
