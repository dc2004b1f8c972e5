#!/usr/bin/env bash
# A ZooKeeper shell: interactive, or with one command.
if [ $# -lt 1 ]; then
  echo "USAGE: $0 zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]"
  exit 1
fi
exec "$(dirname "$(readlink -f "$0")")/kafka-run-class.sh" org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka -server "$@"
