#!/usr/bin/env bash
# Runs the command of a Java class of Kafka with the native binary.
#
# Takes the options and variables of Kafka's script of that name. Those that are for a JVM (KAFKA_HEAP_OPTS,
# KAFKA_JVM_PERFORMANCE_OPTS, KAFKA_GC_LOG_OPTS, KAFKA_JMX_OPTS, JMX_PORT, CLASSPATH ...) have no effect. Of KAFKA_OPTS these
# count: -Djava.security.auth.login.config, -Dzookeeper.sasl.client, -Dzookeeper.sasl.clientconfig, -Djute.maxbuffer, and the
# -Dzookeeper.* properties of TLS to ZooKeeper; for the standalone ZooKeeper also those of its own.
# The binary is $ODRADEK_BINARY, else lib/odradek, else target/release/odradek.
set -u

if [ $# -lt 1 ]; then
  echo "USAGE: $0 [-daemon] [-name servicename] [-loggc] classname [opts]"
  exit 1
fi

base_dir=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)

# Where log files go; the servers read both variables.
export LOG_DIR=${LOG_DIR:-$base_dir/logs}
if [ -z "${KAFKA_LOG4J_OPTS:-}" ]; then
  export KAFKA_LOG4J_OPTS="-Dlog4j.configuration=file:$base_dir/config/tools-log4j.properties"
elif ! mkdir -p "$LOG_DIR"; then
  echo "the log directory $LOG_DIR cannot be made" >&2
  exit 1
fi

daemon=
name=daemon
while [ $# -gt 0 ]; do
  case $1 in
    -name)
      [ $# -ge 2 ] || { echo "-name wants a name" >&2; exit 1; }
      name=$2
      shift 2
      ;;
    -loggc) shift ;; # There is no garbage collector.
    -daemon)
      daemon=yes
      shift
      ;;
    *) break ;;
  esac
done

if [ -n "${ODRADEK_BINARY:-}" ]; then
  binary=$ODRADEK_BINARY
elif [ -x "$base_dir/lib/odradek" ]; then
  binary=$base_dir/lib/odradek
else
  binary=$base_dir/target/release/odradek
fi
if [ ! -x "$binary" ]; then
  echo "the binary $binary is not there: build it with 'cargo build --release', or set ODRADEK_BINARY" >&2
  exit 1
fi

# The process calls itself java, so that scripts that look for 'java ... kafka.Kafka ...' find it.
if [ -n "$daemon" ]; then
  mkdir -p "$LOG_DIR" || exit 1
  (
    # SIGHUP stays ignored across the exec, as nohup has it.
    trap '' HUP
    exec -a java "$binary" "$@"
  ) > "$LOG_DIR/$name.out" 2>&1 < /dev/null &
else
  exec -a java "$binary" "$@"
fi
