#!/usr/bin/env bash
# Starts the broker: in the foreground, or with -daemon in the background with its output in LOG_DIR/kafkaServer.out.
if [ $# -lt 1 ]; then
  echo "USAGE: $0 [-daemon] server.properties [--override property=value]*"
  exit 1
fi
bin=$(dirname "$(readlink -f "$0")")

if [ -z "${KAFKA_LOG4J_OPTS:-}" ]; then
  export KAFKA_LOG4J_OPTS="-Dlog4j.configuration=file:$(dirname "$bin")/config/log4j.properties"
fi
EXTRA_ARGS=${EXTRA_ARGS-'-name kafkaServer -loggc'}
if [ "$1" = -daemon ]; then
  EXTRA_ARGS="-daemon $EXTRA_ARGS"
  shift
fi

# shellcheck disable=SC2086 # EXTRA_ARGS holds several words.
exec "$bin/kafka-run-class.sh" $EXTRA_ARGS kafka.Kafka "$@"
