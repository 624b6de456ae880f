#!/bin/sh
# What a machine with a GPU is asked, most telling stage first: each has a timeout of its own, and its file is written at its end, so
# that a run which is cut off has said something. `summary.txt` has the lines that matter of all stages, `summary-rivals.txt` those
# of the second command.
#
#   run.sh FOLDER-FOR-RESULTS [small] [rivals]
#
# `small`: tiny shapes, to try the script on a processor (lavapipe). `rivals`: the second command, llama.cpp on the same models.
# Variables: DEVICE, another device than the first of Vulkan; MODELS, a folder in which models stay for the second command (30 GB);
# LIMIT_S, seconds of all stages together. The machine needs a driver and a shell: the loader of Vulkan is carried along.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
words=$* size=full what=first
for word in "$@"; do
  case $word in
    small) size=small ;;
    rivals) what=rivals ;;
    *) echo "run.sh: unknown word $word" >&2; exit 2 ;;
  esac
done
device=${DEVICE:-vulkan}
millrace=$here/millrace
summary=$out/summary.txt
[ "$what" = rivals ] && summary=$out/summary-rivals.txt

if [ "$size" = small ]; then
  presets="tiny-llama tiny-qwen3moe" shapes="tiny-llama:Q8_0 tiny-gpt-oss:MXFP4_MOE"
  large_shape=tiny-llama:Q8_0 steps=4 batches=1,4 prompt_tokens="16 64" large_prompt_tokens= rival_prompt=64 client_counts="1 4"
  facts_s=60 report_s=1800 models_s=300 decode_s=300 prompts_s=300 served_s=300 rivals_s=1500 limit_s=${LIMIT_S:-3060}
else
  presets="tiny-llama tiny-qwen3 tiny-gemma3 tiny-gemma4 tiny-phi3 tiny-qwen3moe tiny-gpt-oss tiny-qwen35 tiny-qwen35moe tiny-mamba2 tiny-lfm2 tiny-deepseek2"
  # Of models with experts four layers: the rest of a step is a multiple of them, but for the head.
  shapes="llama-1b:Q8_0 llama-8b:Q8_0 gpt-oss-20b-slice:MXFP4_MOE qwen3-30b-a3b-slice:Q4_K_M qwen3.5-35b-a3b-slice:Q4_K_M"
  shapes="$shapes llama-8b:Q4_K_M llama-1b:F16 llama-8b:Q4_0 llama-1b:Q4_K_M"
  large_shape=llama-8b:Q8_0 steps=64 batches=1,8,32,128 client_counts="1 32"
  prompt_tokens="512 2048 8192" large_prompt_tokens="2048 8192" rival_prompt=2048
  facts_s=20 report_s=80 models_s=70 decode_s=190 prompts_s=90 served_s=100 rivals_s=540 limit_s=${LIMIT_S:-570}
fi
first_shape=${shapes%% *}

facts() {
  uname -a
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv 2>&1
  echo "NVIDIA_DRIVER_CAPABILITIES=${NVIDIA_DRIVER_CAPABILITIES:-}, VK_DRIVER_FILES=${VK_DRIVER_FILES:-}"
  ls /usr/share/vulkan/icd.d /etc/vulkan/icd.d 2>&1
  ldconfig -p 2> /dev/null | grep -E 'nvidia|libvulkan'
  "$millrace" --version
  "$millrace" doctor --device "$device" > "$work/doctor"
  code=$?
  cat "$work/doctor"
  return "$code"
}

report() {
  "$millrace" doctor --device "$device" --report
}

# Answers of small models on the device and on the processor, token for token where both are sure.
models() {
  failed=0
  for preset in $presets; do
    for quant in F32 Q8_0 Q4_K_M; do
      file=$work/$preset-$quant.gguf
      "$millrace" synth "$file" --preset "$preset" --quant "$quant" > /dev/null || continue
      ask() { "$millrace" run -m "$file" --device "$1" --temperature 0 -n 12 "Hello" 2> "$work/said"; }
      wanted=$(ask cpu) || { cat "$work/said"; continue; }
      if given=$(ask "$device"); then
        [ "$wanted" = "$given" ] && same=same || same="other tokens"
      else
        same="FAILED: $(tail -n 1 "$work/said")" failed=$((failed + 1))
      fi
      echo "$preset $quant: $same"
      rm -f "$file"
    done
  done
  echo "$failed models failed"
  return "$failed"
}

# The model of a shape, which is written in the background from the first second on.
model() {
  until [ -e "$MODELS/$1.gguf" ]; do
    [ -e "$work/$1.failed" ] && { echo "$1 was not written" >&2; return 1; }
    sleep 0.2
  done
  echo "$MODELS/$1.gguf"
}

write_model() {
  file=$MODELS/$1.gguf
  [ -e "$file" ] && return
  if "$millrace" synth "$file.part" --preset "${1%%:*}" --quant "${1#*:}" > /dev/null 2>&1; then
    mv "$file.part" "$file"
  else
    : > "$work/$1.failed"
  fi
}

bench() {
  "$millrace" bench model --device "$device" --kv-mib 16384 "$@"
}

# Each batch twice: with the logits of each step read back, and "ahead", as the server decodes.
decode() {
  code=0
  for shape in $shapes; do
    echo "== $shape"
    file=$(model "$shape") && bench --model "$file" --prompt 0 --gen "$steps" --batch "$batches" --ahead --rounds 2 || code=1
  done
  return "$code"
}

prompt() {
  echo "== $1, prompt of $2"
  file=$(model "$1") && bench --model "$file" --prompt "$2" --gen 0 --rounds 2 || code=1
}

prompts() {
  code=0
  for tokens in $prompt_tokens; do prompt "$first_shape" "$tokens"; done
  for tokens in $large_prompt_tokens; do prompt "$large_shape" "$tokens"; done
  return "$code"
}

# The server on the larger model, with clients.
served() {
  echo "== server of $large_shape"
  file=$(model "$large_shape") || return
  "$millrace" serve "$file" --bind 127.0.0.1:0 --device "$device" > "$work/server" 2>&1 &
  server=$!
  until grep -q " serves " "$work/server"; do
    kill -0 "$server" 2> /dev/null || { cat "$work/server"; return 1; }
    sleep 0.2
  done
  url=$(sed -n 's/.* serves .*\(http:[^ ]*\).*/\1/p' "$work/server" | head -n 1)
  code=0
  for clients in $client_counts; do
    echo "== $clients clients"
    "$millrace" bench serve --url "$url" --clients "$clients" --gen "$steps" --ignore-eos --pid "$server" || code=1
  done
  kill "$server"
  wait "$server" || code=1
  tail -n 20 "$work/server"
  return "$code"
}

rivals() {
  code=0
  for shape in $shapes; do
    case $shape in *:F16 | tiny-gpt-oss*) continue ;; esac
    file=$(model "$shape") && python3 "$here/rivals.py" "$file" "$shape" "$steps" "$rival_prompt" || code=1
  done
  return "$code"
}

# The lines of a stage that the summary has.
telling() {
  case $1 in
    facts) grep -E ' device |^[0-9]+ of ' ;;
    report) grep -E '^reads|GB/s|checks of kernels|: (buffer|a page|element|kernel) ' ;;
    models) grep -E 'FAILED|other tokens|models failed' ;;
    rivals) grep 'tokens/s' ;;
    *)
      grep -E '^== |^decode: |^(decode|prompt) [0-9]|requests answered|^(first token|between tokens) |by the clock of the device|left out' |
        awk '!/^decode: / || !said++' # what the names of tests mean, once
      ;;
  esac < "$work/$1" | head -n "$2"
}

# stage NAME SECONDS: runs a function of this name, keeps what it says, prints the lines that matter.
stage() {
  name=$1 seconds=$2
  begun=$(date +%s)
  left=$((limit_s - begun + started))
  [ "$left" -gt "$seconds" ] && left=$seconds
  if [ "$left" -lt 3 ]; then
    echo "== $name: no time is left" | tee -a "$summary"
    failures=$((failures + 1))
    return
  fi
  # `timeout` runs this script once more, and ends all processes of the stage.
  STAGE=$name timeout -k 5 "$left" "$0" "$out" $words > "$work/$name" 2>&1
  code=$?
  took=$(($(date +%s) - begun))
  { cat "$work/$name"; echo "exit status $code after $took s"; } > "$out/$name.txt"
  [ "$code" -eq 0 ] || failures=$((failures + 1))
  case $code in
    0) ended=done ;;
    124 | 137) ended="cut off" ;;
    *) ended="failed with $code" ;;
  esac
  { echo "== $name: $ended after $took s"; telling "$name" 160; [ "$code" -eq 0 ] || tail -n 3 "$work/$name"; } >> "$summary"
  echo "== $name: $ended after $took s"
  telling "$name" 8
  [ "$code" -eq 0 ] || tail -n 3 "$work/$name"
}

if [ -n "${STAGE:-}" ]; then
  work=$WORK
  "$STAGE"
  exit
fi

started=$(date +%s) failures=0
mkdir -p "$out"
: > "$summary"
work=$(mktemp -d)
writers=
trap 'kill $writers 2> /dev/null; rm -rf "$work"' EXIT
export WORK="$work" TMPDIR="$work" XDG_STATE_HOME="$work" XDG_CACHE_HOME="$work" XDG_DATA_HOME="$work"
export LD_LIBRARY_PATH="$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MODELS="${MODELS:-$work}"
mkdir -p "$MODELS"
for shape in $shapes; do
  write_model "$shape" &
  writers="$writers $!"
done

# Whether a device is found that is no processor.
finds_gpu() { "$millrace" doctor 2> /dev/null | grep -E ' vulkan:[0-9]+ is ' | grep -qv ', processor$'; }

# The driver is the machine's. Where NVIDIA's libraries are there without the file that names them to the loader, it is written here;
# the one for EGL needs no libraries of X11.
if [ "$size" = full ] && ! finds_gpu; then
  for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
    found=$(ldconfig -p 2> /dev/null | sed -n "s/.*=> \(.*$library\)\$/\1/p" | head -n 1)
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' "${found:-$library}" > "$work/icd.json"
    export VK_DRIVER_FILES="$work/icd.json"
    finds_gpu && break
    unset VK_DRIVER_FILES
  done
fi

if [ "$what" = rivals ]; then
  stage rivals "$rivals_s"
else
  stage facts "$facts_s"
  stage report "$report_s"
  stage models "$models_s"
  stage decode "$decode_s"
  stage prompts "$prompts_s"
  stage served "$served_s"
fi
echo "== $failures stages failed, $(($(date +%s) - started)) s in all" | tee -a "$summary"
[ "$failures" -eq 0 ]
