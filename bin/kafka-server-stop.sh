#!/usr/bin/env bash
# Stops the brokers of this machine, and returns at once.
#
#   kafka-server-stop.sh [--process-role=ROLE] [--node-id=ID]
#
# With a selector only those whose properties file (the last word of their command line) has that process.roles or
# node.id. SIGNAL (default TERM) is what is sent.
signal=${SIGNAL:-TERM}
role=
node=
for argument in "$@"; do
  case $argument in
    --process-role=*) role=${argument#*=} ;;
    --node-id=*) node=${argument#*=} ;;
  esac
done
if [ -n "$role" ] && [ -n "$node" ]; then
  echo "When both node-id and process-role are provided, the value for node-id will take precedence"
fi

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

mapfile -t lines < <(processes | grep ' kafka\.Kafka ' | grep java | grep -v grep)
if [ ${#lines[@]} -eq 0 ]; then
  echo "No kafka server to stop"
  exit 1
fi

# Whether the properties file of a command line has the wanted value.
is_wanted() {
  [ -n "$role$node" ] || return 0
  local line file key=process.roles wanted=$role
  line=$(sed 's/--override [^ ]*//g; s/ *$//' <<< "$1")
  file=$(readlink -f "${line##* }")
  if [ ! -e "$file" ]; then
    echo "Can not find the configuration file in the current directory. Please make sure the kafka stop process and the start process are called in the same directory."
    exit 1
  fi
  if [ -n "$node" ]; then
    key=node.id
    wanted=$node
  fi
  [ "$(sed -n "s/^$key=//p" "$file" | head -1)" = "$wanted" ]
}

for line in "${lines[@]}"; do
  if is_wanted "$line"; then
    read -r pid _ <<< "$line"
    kill -s "$signal" "$pid"
  fi
done
