#!/bin/sh
# What a machine with a GPU is asked first, most telling stage first: each has a timeout of its own, and its file is written at its
# end, so that a run which is cut off has said something.
#
#   run.sh FOLDER-FOR-RESULTS [small]
#
# `small`: tiny shapes, to try the script on a processor (lavapipe). DEVICE names another device than the first of Vulkan.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
size=${2:-full}
device=${DEVICE:-vulkan}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The loader of Vulkan is carried along; the driver is the machine's. Where the machine has NVIDIA's libraries without the file that
# names them to the loader, the file is written here.
export LD_LIBRARY_PATH="$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
found=$(ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2> /dev/null)
if [ -z "$found" ]; then
  library=$(ldconfig -p 2> /dev/null | sed -n 's/.*=> \(.*libGLX_nvidia\.so\.0\)$/\1/p' | head -n 1)
  [ -n "$library" ] || library=libGLX_nvidia.so.0
  printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' "$library" > "$work/nvidia.json"
  export VK_DRIVER_FILES="$work/nvidia.json"
fi
export TMPDIR="$work" XDG_STATE_HOME="$work" XDG_CACHE_HOME="$work" XDG_DATA_HOME="$work"
millrace=$here/millrace

# stage NAME SECONDS COMMAND..: runs it, keeps what it says, prints its last lines.
stage() {
  name=$1 seconds=$2
  shift 2
  begun=$(date +%s)
  timeout -k 5 "$seconds" "$@" > "$work/$name" 2>&1
  code=$?
  took=$(($(date +%s) - begun))
  { cat "$work/$name"; echo "exit status $code after $took s"; } > "$out/$name.txt"
  echo "== $name: exit status $code after $took s"
  tail -n 4 "$work/$name"
}

facts() {
  uname -a
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv 2>&1
  ls /usr/share/vulkan/icd.d /etc/vulkan/icd.d 2>&1
  "$millrace" --version
  "$millrace" doctor --device "$device" > "$work/doctor"
  code=$?
  cat "$work/doctor"
  # Last, where they are printed.
  grep " device " "$work/doctor"
  return "$code"
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

bench() {
  "$millrace" bench model --device "$device" --kv-mib 16384 "$@"
}

decode() {
  for shape in $shapes; do
    echo "== $shape"
    bench --synth "$shape" --prompt 0 --gen "$steps" --batch 1,8,32 --rounds 2
  done
}

prompts() {
  for tokens in $prompt_tokens; do
    echo "== $first_shape, prompt of $tokens"
    bench --synth "$first_shape" --prompt "$tokens" --gen 0 --rounds 2
  done
}

# The server on a model, with clients.
served() {
  file=$work/served.gguf
  "$millrace" synth "$file" --preset "${first_shape%%:*}" --quant "${first_shape#*:}" > /dev/null || return
  "$millrace" serve "$file" --bind 127.0.0.1:0 --device "$device" > "$work/server" 2>&1 &
  server=$!
  waited=0
  until grep -q " serves " "$work/server"; do
    kill -0 "$server" 2> /dev/null || { cat "$work/server"; return 1; }
    waited=$((waited + 1))
    [ "$waited" -lt 600 ] || break
    sleep 0.2
  done
  url=$(sed -n 's/.* serves .*\(http:[^ ]*\).*/\1/p' "$work/server" | head -n 1)
  for clients in $client_counts; do
    echo "== $clients clients"
    "$millrace" bench serve --url "$url" --clients "$clients" --gen "$steps" --ignore-eos --pid "$server"
  done
  kill "$server"
  wait "$server"
  tail -n 20 "$work/server"
}

if [ "$size" = small ]; then
  presets="tiny-llama tiny-qwen3moe" shapes="tiny-llama:Q8_0 tiny-gpt-oss:MXFP4_MOE" first_shape=tiny-llama:Q8_0
  steps=4 prompt_tokens="16 64" client_counts="1 4"
  facts_s=60 report_s=1800 models_s=300 decode_s=300 prompts_s=200 served_s=200
else
  presets="tiny-llama tiny-qwen3 tiny-gemma3 tiny-gemma4 tiny-phi3 tiny-qwen3moe tiny-gpt-oss tiny-qwen35 tiny-qwen35moe tiny-mamba2 tiny-lfm2 tiny-deepseek2"
  shapes="llama-1b:Q8_0 llama-8b:Q8_0 llama-1b:Q4_K_M llama-8b:Q4_K_M llama-1b:F16" first_shape=llama-1b:Q8_0
  steps=64 prompt_tokens="512 2048" client_counts="1 32"
  facts_s=20 report_s=90 models_s=80 decode_s=240 prompts_s=60 served_s=90
fi

# Stages are functions: `timeout` runs this script once more for each.
case ${STAGE:-} in
  "") ;;
  *)
    "$STAGE"
    exit
    ;;
esac
run() { stage "$1" "$2" env STAGE="$1" "$0" "$out" "$size"; }
run facts "$facts_s"
stage report "$report_s" "$millrace" doctor --device "$device" --report
run models "$models_s"
run decode "$decode_s"
run prompts "$prompts_s"
run served "$served_s"
