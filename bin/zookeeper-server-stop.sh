#!/usr/bin/env bash
# Stops the ZooKeepers of this machine, and returns at once. SIGNAL (default TERM) is what is sent.
signal=${SIGNAL:-TERM}

# Process ids and command lines; without ps (a small container) from /proc.
processes() {
  if command -v ps > /dev/null; then
    ps ax
    return
  fi
  local directory
  for directory in /proc/[0-9]*; do
    [ -r "$directory/cmdline" ] || continue
    printf '%s - - - %s\n' "${directory#/proc/}" "$(tr '\0' ' ' < "$directory/cmdline" 2> /dev/null)"
  done
}

pids=$(processes | grep java | grep -i QuorumPeerMain | grep -v grep | awk '{ print $1 }')
if [ -z "$pids" ]; then
  echo "No zookeeper server to stop"
  exit 1
fi
# shellcheck disable=SC2086 # One word a process.
kill -s "$signal" $pids
