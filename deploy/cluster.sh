#!/usr/bin/env bash
# A cluster on one machine: three NATS servers, two gateways, three engines, and nginx in front if it is installed.
#
#   deploy/cluster.sh start [NAME...]    starts all, or some of: nats-1 nats-2 nats-3 engine-1 ... gateway-1 ... nginx
#   deploy/cluster.sh stop [NAME...]     ends them (SIGTERM), and waits
#   deploy/cluster.sh roll               restarts each engine, then each gateway, while the others serve
#   deploy/cluster.sh status             names, process ids, addresses; not 0 if one does not run
#   deploy/cluster.sh logs [NAME...]     follows their logs
#
# Variables, the same at each call:
#   MODEL             model file; default: the built-in model
#   STATE             directory of logs, process ids, journals, nkeys and NATS's files; default: millrace-cluster
#   MILLRACE          the program; default: millrace
#   NATS_SERVER       default: nats-server (also in /usr/sbin)
#   NGINX             default: nginx (also in /usr/sbin); empty: none
#   ENGINES, GATEWAYS how many; default: 3 and 2
#   NGINX_PORT 8420, GATEWAY_PORT 8431 and up, ENGINE_PORT 8441 and up,
#   NATS_PORT 4222 and up, NATS_ROUTE_PORT 6222 and up, NATS_MONITOR_PORT 8222 and up: on 127.0.0.1
#   WAIT              seconds in which a process must become ready or end; default: 120
#   SERVERS           addresses of NATS for engines and gateways; default: those of the three servers
#   PREFIX            put before the command of each process that is started, such as `nice`
#   MILLRACE_*        settings for gateways and engines (docs/settings.md)
#
# Only processes that this script has started are ended: their ids and start times are in STATE/pids.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/sbin

STATE=${STATE:-millrace-cluster}
MILLRACE=${MILLRACE:-millrace}
NATS_SERVER=${NATS_SERVER:-nats-server}
NGINX=${NGINX-nginx}
ENGINES=${ENGINES:-3} GATEWAYS=${GATEWAYS:-2}
NGINX_PORT=${NGINX_PORT:-8420} GATEWAY_PORT=${GATEWAY_PORT:-8431} ENGINE_PORT=${ENGINE_PORT:-8441}
NATS_PORT=${NATS_PORT:-4222} NATS_ROUTE_PORT=${NATS_ROUTE_PORT:-6222} NATS_MONITOR_PORT=${NATS_MONITOR_PORT:-8222}
WAIT=${WAIT:-120}

fail() { echo "cluster.sh: $*" >&2; exit 1; }

# "nats-1 nats-2 ..."
numbered() { for ((n = 1; n <= $2; n++)); do echo "$1-$n"; done; }

all_names() {
  numbered nats 3
  numbered engine "$ENGINES"
  numbered gateway "$GATEWAYS"
  if [[ -n $NGINX ]] && command -v "$NGINX" >/dev/null; then echo nginx; fi
}

# The port at which a process says whether it is ready.
port_of() {
  local number=${1##*-}
  case $1 in
    nats-[123]) echo $((NATS_MONITOR_PORT + number - 1)) ;;
    engine-[1-9] | engine-[1-9][0-9]) echo $((ENGINE_PORT + number - 1)) ;;
    gateway-[1-9] | gateway-[1-9][0-9]) echo $((GATEWAY_PORT + number - 1)) ;;
    nginx) echo "$NGINX_PORT" ;;
    *) fail "$1 is none of: $(all_names | tr '\n' ' ')" ;;
  esac
}

# When a process was started, in ticks since the boot; nothing if it has ended. A zombie has ended.
started_at() {
  local line
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # After the name in brackets: state is field 3, the start is field 22.
  set -- ${line##*) }
  [[ $1 == Z ]] || echo "${20}"
}

# The id of the process of this name, if it is one that this script has started and that runs.
pid_of() {
  local pid start
  [[ -f $STATE/pids/$1 ]] || return 0
  read -r pid start <"$STATE/pids/$1"
  if [[ $(started_at "$pid") == "$start" ]]; then echo "$pid"; fi
}

launch() {
  local name=$1 pid
  shift
  # Descriptors of the caller (a lock, a pipe) must not stay open in a server.
  # shellcheck disable=SC2086
  setsid ${PREFIX:-} "$@" >>"$STATE/logs/$name" 2>&1 </dev/null &
  pid=$!
  echo "$pid $(started_at "$pid")" >"$STATE/pids/$name"
}

is_ready() {
  local path=/health/readiness reply
  case $1 in nats-*) path=/healthz ;; nginx) path=/health/liveness ;; esac
  # shellcheck disable=SC2016
  reply=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET %s HTTP/1.0\r\n\r\n" "$1" >&3 && head -n 1 <&3' \
    "$(port_of "$1")" "$path" 2>/dev/null) || return 1
  # nginx runs if it answers at all.
  [[ $reply == *" 200 "* || ($1 == nginx && $reply == HTTP/*) ]]
}

wait_until_ready() {
  local end=$((SECONDS + WAIT)) name
  for name; do
    until is_ready "$name"; do
      [[ -n $(pid_of "$name") ]] || fail "$name has ended: $(tail -n 3 "$STATE/logs/$name")"
      ((SECONDS < end)) || fail "$name is not ready after $WAIT s; see $STATE/logs/$name"
      sleep 0.1
    done
  done
}

nkey_of() {
  [[ -f $STATE/$1.nkey ]] || "$MILLRACE" nkey "$STATE/$1.nkey" >"$STATE/$1.public"
  cat "$STATE/$1.public"
}

# The gateways trust each other by it.
secret_of_gateways() {
  [[ -f $STATE/gateways.secret ]] || (umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$STATE/gateways.secret")
  echo "$STATE/gateways.secret"
}

start_nats() {
  local name=$1 n=$((${1##*-} - 1)) config=$STATE/$1.conf
  mkdir -p "$STATE/$name"
  # deploy/nats/three-servers.conf with the ports of this cluster, and a page that shows the state.
  {
    sed -e "s|127.0.0.1:6222\"|127.0.0.1:$NATS_ROUTE_PORT\"|" -e "s|127.0.0.1:6223\"|127.0.0.1:$((NATS_ROUTE_PORT + 1))\"|" \
      -e "s|127.0.0.1:6224\"|127.0.0.1:$((NATS_ROUTE_PORT + 2))\"|" -e "s|^include .*||" "$here/nats/three-servers.conf"
    cat "$here/nats/rights.conf"
    echo "http: \"127.0.0.1:$((NATS_MONITOR_PORT + n))\""
  } >"$config"
  GATEWAY_NKEY=$(nkey_of gateway) ENGINE_NKEY=$(nkey_of engine) NAME=$name STORE=$STATE/$name \
    PORT=$((NATS_PORT + n)) ROUTE_PORT=$((NATS_ROUTE_PORT + n)) launch "$name" "$NATS_SERVER" -c "$config"
}

start_millrace() {
  local name=$1 role=${1%-*} servers
  servers=${SERVERS:-$(for n in 0 1 2; do printf ',nats://127.0.0.1:%s' $((NATS_PORT + n)); done)}
  local args=(serve --role "$role" --nats "${servers#,}" --bind "127.0.0.1:$(port_of "$name")")
  mkdir -p "$STATE/$name"
  # All three servers hold a copy of the records; each process has a journal of its own.
  export MILLRACE_CLUSTER_NKEY_FILE=$STATE/$role.nkey MILLRACE_JOURNAL_DIRECTORY=$STATE/$name
  if [[ $role == gateway ]]; then export MILLRACE_CLUSTER_SECRET_FILE=${MILLRACE_CLUSTER_SECRET_FILE:-$(secret_of_gateways)}; fi
  if [[ $role == engine && -z ${MILLRACE_MODEL_THREADS:-} ]]; then
    # Engines share the processors.
    local threads=$(($(nproc) / ENGINES))
    args+=(--threads $((threads > 0 ? threads : 1)))
  fi
  launch "$name" "$MILLRACE" "${args[@]}" ${MODEL:+"$MODEL"}
}

start_nginx() {
  local config=$STATE/nginx.conf servers
  servers=$(for name in $(numbered gateway "$GATEWAYS"); do printf '    server 127.0.0.1:%s max_fails=0;\\n' "$(port_of "$name")"; done)
  sed -e "s|127.0.0.1:8420|127.0.0.1:$NGINX_PORT|" -e "s|^ *server 127.0.0.1:8431 .*|${servers%\\n}|" \
    -e "/^ *server 127.0.0.1:8432 /d" "$here/nginx.conf" >"$config"
  mkdir -p "$STATE/nginx"
  launch nginx "$NGINX" -p "$STATE/nginx" -c "$config" -g "daemon off;"
}

start() {
  local name kind wanted=()
  for name; do
    port_of "$name" >/dev/null
    if [[ -n $(pid_of "$name") ]]; then echo "$name runs already"; else wanted+=("$name"); fi
  done
  mkdir -p "$STATE/pids" "$STATE/logs"
  # One kind after another: engines need NATS, and gateways are ready when they see an engine.
  for kind in nats engine gateway nginx; do
    local some=()
    for name in "${wanted[@]}"; do
      [[ $name == $kind || $name == $kind-* ]] || continue
      case $kind in nats) start_nats "$name" ;; nginx) start_nginx ;; *) start_millrace "$name" ;; esac
      some+=("$name")
    done
    wait_until_ready "${some[@]}"
  done
}

stop() {
  local name pid end
  for name; do
    port_of "$name" >/dev/null
    pid=$(pid_of "$name")
    [[ -z $pid ]] || kill -TERM "$pid"
  done
  end=$((SECONDS + WAIT))
  for name; do
    while [[ -n $(pid_of "$name") ]]; do
      ((SECONDS < end)) || fail "$name (process $(pid_of "$name")) has not ended after $WAIT s"
      sleep 0.1
    done
    rm -f "$STATE/pids/$name"
  done
}

roll() {
  local name
  for name in $(numbered engine "$ENGINES") $(numbered gateway "$GATEWAYS"); do
    stop "$name"
    start "$name"
    echo "$name is new"
  done
}

status() {
  local name pid missing=0
  for name in $(all_names); do
    pid=$(pid_of "$name")
    if [[ -z $pid ]]; then
      echo "$name does not run"
      missing=1
    elif is_ready "$name"; then
      echo "$name is ready: process $pid, http://127.0.0.1:$(port_of "$name")"
    else
      echo "$name runs, and is not ready: process $pid, http://127.0.0.1:$(port_of "$name")"
    fi
  done
  return $missing
}

verb=${1:-}
case $verb in
  start) mkdir -p "$STATE" ;;
  stop | roll | status | logs) [[ -d $STATE ]] || fail "nothing was started: there is no directory $STATE" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
STATE=$(cd "$STATE" && pwd)
names=("${@:2}")
((${#names[@]})) || mapfile -t names < <(all_names)
case $verb in
  start) start "${names[@]}" ;;
  # Gateways and engines end before the NATS servers.
  stop) for kind in nginx gateway engine nats; do
    some=()
    for name in "${names[@]}"; do [[ $name != $kind && $name != $kind-* ]] || some+=("$name"); done
    stop "${some[@]}"
  done ;;
  roll) roll ;;
  status) status ;;
  logs) tail -n 20 -F "${names[@]/#/$STATE/logs/}" ;;
esac
