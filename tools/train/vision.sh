#!/bin/bash
# Makes the model that sees anew: training (pictures are drawn meanwhile), the two GGUF files, the accuracy, the tests' pictures.
# tools/train/vision.sh [WORK_FOLDER]; stop it when you like, it continues where it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "${1:-$here/work}")
mkdir -p "$work"
[ -d "$work/venv" ] || { python3 -m venv "$work/venv"; "$work/venv/bin/pip" install -q -r "$here/requirements.txt"; }
python=$work/venv/bin/python
. "$here/train.env"
cd "$here"
# The tower learns what patches show; then all of it learns to answer, first about one picture, then everything.
stage() {
  local name=$1; shift
  mkdir -p "$work/$name"
  [ -f "$work/$name/vocabulary.json" ] || [ "$name" = tower ] || cp "$work/tower/vocabulary.json" "$work/$name/"
  "$python" -m vision.train "$work/$name" "$@"
}
stage tower --pictures-alone --minutes "${TOWER_MINUTES:-10}" --decay 0.01
stage single --single --after "$work/tower/checkpoint.pt" --minutes "${SINGLE_MINUTES:-20}" --decay 0.01
stage seeing --after "$work/single/checkpoint.pt" --minutes "${MINUTES:-20}" --decay 0.8
text=$work/millrace-mini-vision.gguf
tower=$work/millrace-mini-vision.mmproj.gguf
"$python" -m vision.export "$work/seeing" "$text" "$tower"
"$python" -m vision.held_out "$text" "$tower"
"$python" -m vision.pictures "$text" "$tower" "$work/pictures" --right-only
echo "To take it: cp $work/*.gguf crates/millrace/mini/; cp -r $work/pictures crates/millrace/tests/"
