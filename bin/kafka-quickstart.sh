#!/usr/bin/env bash
# Starts a ZooKeeper and a broker on this machine, sends a few records and reads them back.
#
#   kafka-quickstart.sh          build if need be, start both, try them
#   kafka-quickstart.sh --stop   stop both
#
# Takes config/zookeeper.properties and config/server.properties as they are.
set -u

base=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
bin=$base/bin
export LOG_DIR=${LOG_DIR:-$base/logs}
zookeeper_file=$base/config/zookeeper.properties
server_file=$base/config/server.properties
topic=quickstart-events
zookeeper_pid=$LOG_DIR/quickstart-zookeeper.pid
broker_pid=$LOG_DIR/quickstart-broker.pid

started=() # pid files of what this call has started
# Says why it does not work, and ends what this call has started.
fail() {
  echo "kafka-quickstart: $*" >&2
  local file
  for file in "${started[@]}"; do
    kill "$(cat "$file")" 2> /dev/null
    rm -f "$file"
  done
  exit 1
}

# The value of a key in a properties file, or a default.
property() { # file key default
  local value
  value=$(sed -n "s/[[:space:]]*\$//; s/^[[:space:]]*${2//./\\.}[[:space:]]*[=:][[:space:]]*//p" "$1" | tail -1)
  echo "${value:-$3}"
}

# A text without white space around it.
trimmed() {
  local text=$1
  text=${text#"${text%%[![:space:]]*}"}
  echo "${text%"${text##*[![:space:]]}"}"
}

# Whether the process of a pid file lives and is ours.
lives() { # pid-file word
  local pid
  pid=$(cat "$1" 2> /dev/null) || return 1
  [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] && { tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null | grep -q -- "$2"
}

is_open() { # host port
  local host=${1#\[}
  (exec 3<> "/dev/tcp/${host%\]}/$2") 2> /dev/null
}

stop_one() { # pid-file word name
  if ! lives "$1" "$2"; then
    rm -f "$1"
    echo "The $3 is not running."
    return
  fi
  local pid
  pid=$(cat "$1")
  kill "$pid"
  for _ in $(seq 600); do
    if ! kill -0 "$pid" 2> /dev/null; then
      rm -f "$1"
      echo "The $3 is stopped."
      return
    fi
    sleep 0.1
  done
  fail "the $3 (process $pid) does not end within a minute: see $LOG_DIR"
}

case ${1:-} in
  --stop)
    stop_one "$broker_pid" kafka.Kafka broker
    stop_one "$zookeeper_pid" QuorumPeerMain ZooKeeper
    exit 0
    ;;
  '') ;;
  *)
    echo "USAGE: $0 [--stop]" >&2
    exit 1
    ;;
esac

for file in "$zookeeper_file" "$server_file"; do
  [ -r "$file" ] || fail "$file cannot be read"
done
zookeeper_port=$(property "$zookeeper_file" clientPort 2181)
zookeeper_data=$(property "$zookeeper_file" dataDir /tmp/zookeeper)
listener=$(property "$server_file" listeners "PLAINTEXT://:9092")
listener=$(trimmed "${listener%%,*}")
address=${listener##*://}
host=${address%:*}
port=${address##*:}
case $host in '' | 0.0.0.0 | '[::]') host=localhost ;; esac
bootstrap=$host:$port
log_dirs=$(property "$server_file" log.dirs "$(property "$server_file" log.dir /tmp/kafka-logs)")

if lives "$zookeeper_pid" QuorumPeerMain && lives "$broker_pid" kafka.Kafka; then
  echo "Already running: broker at $bootstrap (process $(cat "$broker_pid")), ZooKeeper at localhost:$zookeeper_port (process $(cat "$zookeeper_pid"))."
  echo "Logs are in $LOG_DIR. Stop both with: $0 --stop"
  exit 0
fi

# A directory that can be written to, made if need be.
check_directory() { # directory what
  { mkdir -p "$1" && [ -w "$1" ]; } 2> /dev/null || fail "the $2 $1 cannot be written to"
}
check_directory "$LOG_DIR" "log directory"
check_directory "$zookeeper_data" "data directory of ZooKeeper (dataDir in $zookeeper_file)"
IFS=, read -ra directories <<< "$log_dirs"
for directory in "${directories[@]}"; do
  check_directory "$(trimmed "$directory")" "data directory of the broker (log.dirs in $server_file)"
done

if ! lives "$zookeeper_pid" QuorumPeerMain && is_open localhost "$zookeeper_port"; then
  fail "port $zookeeper_port is taken by another program: end it, or change clientPort in $zookeeper_file and zookeeper.connect in $server_file"
fi
if ! lives "$broker_pid" kafka.Kafka && is_open "$host" "$port"; then
  fail "port $port is taken by another program: end it, or change listeners in $server_file"
fi

if [ -z "${ODRADEK_BINARY:-}" ] && [ ! -x "$base/lib/odradek" ] && [ ! -x "$base/target/release/odradek" ]; then
  command -v cargo > /dev/null || fail "cargo is not there: install Rust from https://rustup.rs, then run this again"
  command -v cc > /dev/null || fail "there is no C compiler: install gcc, then run this again"
  echo "Building the release binary once; this takes a few minutes ..."
  (cd "$base" && cargo build --release -p tools --bin odradek) || fail "the build failed: see above"
fi

# Starts a server whose process id is ours to know.
start() { # pid-file output script file
  setsid "$bin/$3" "$4" > "$LOG_DIR/$2" 2>&1 < /dev/null &
  echo $! > "$1"
  started+=("$1")
}

wait_for() { # pid-file word name output command...: until the command succeeds, at most a minute
  local pid_file=$1 word=$2 name=$3 output=$4
  shift 4
  for _ in $(seq 300); do
    if "$@" > /dev/null 2>&1; then return; fi
    # The script needs a moment to become the server.
    if ! kill -0 "$(cat "$pid_file")" 2> /dev/null; then
      local reason
      reason=$(grep . "$LOG_DIR/$output" | tail -1)
      fail "the $name ended at once (${reason:-no output}): see $LOG_DIR/$output"
    fi
    sleep 0.2
  done
  lives "$pid_file" "$word" || fail "the $name does not run: see $LOG_DIR/$output"
  fail "the $name does not answer within a minute: see $LOG_DIR/$output"
}

if ! lives "$zookeeper_pid" QuorumPeerMain; then
  echo "Starting ZooKeeper at localhost:$zookeeper_port ..."
  start "$zookeeper_pid" zookeeper.out zookeeper-server-start.sh "$zookeeper_file"
  wait_for "$zookeeper_pid" QuorumPeerMain ZooKeeper zookeeper.out is_open localhost "$zookeeper_port"
fi
echo "Starting the broker at $bootstrap ..."
start "$broker_pid" kafkaServer.out kafka-server-start.sh "$server_file"
serves() { "$bin/kafka-broker-api-versions.sh" --bootstrap-server "$bootstrap"; }
wait_for "$broker_pid" kafka.Kafka broker kafkaServer.out serves

"$bin/kafka-topics.sh" --bootstrap-server "$bootstrap" --create --topic "$topic" --partitions 1 --if-not-exists \
  || fail "the topic $topic cannot be made: see $LOG_DIR/server.log"
offset=$("$bin/kafka-get-offsets.sh" --bootstrap-server "$bootstrap" --topic "$topic")
offset=${offset##*:}
lines=$'This is my first event\nThis is my second event\nThis is my third event'
echo "Sending three records to $topic ..."
"$bin/kafka-console-producer.sh" --bootstrap-server "$bootstrap" --topic "$topic" --timeout 0 <<< "$lines" \
  || fail "the records cannot be sent: see $LOG_DIR/server.log"
echo "Reading them back:"
back=$("$bin/kafka-console-consumer.sh" --bootstrap-server "$bootstrap" --topic "$topic" --partition 0 \
  --offset "$offset" --max-messages 3 --timeout-ms 10000 2> "$LOG_DIR/quickstart-consumer.err")
sed 's/^/  /' <<< "$back"
[ "$back" = "$lines" ] || fail "what came back is not what was sent: see $LOG_DIR"

cat << END

It works. ZooKeeper (process $(cat "$zookeeper_pid")) and the broker (process $(cat "$broker_pid")) go on running.
  Logs:  $LOG_DIR
  Data:  $log_dirs (broker), $zookeeper_data (ZooKeeper)

Go on with:
  $bin/kafka-topics.sh --bootstrap-server $bootstrap --describe
  $bin/kafka-console-producer.sh --bootstrap-server $bootstrap --topic $topic
  $bin/kafka-console-consumer.sh --bootstrap-server $bootstrap --topic $topic --from-beginning

Stop both with:
  $0 --stop
END
