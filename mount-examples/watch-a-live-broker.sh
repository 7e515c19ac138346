#!/usr/bin/env bash
# Watch what a running broker writes, beside it, on its own machine.
#
#   watch-a-live-broker.sh DIRECTORY TOPIC PARTITION     DIRECTORY is the broker's log.dirs; ends with Ctrl-C
#   watch-a-live-broker.sh                               demonstration with another process in the broker's place
#
# Why: a read-only mount takes no lock and writes nothing; new records, rolled segments and retention are seen without mounting again. It
# shows what lies on this broker's disk, also what a consumer would not get yet (above the high watermark), and needs no credentials of the cluster.
. "$(dirname "$0")/common.sh"

mkdir mnt
if [ $# = 3 ]; then
    offsetfs mount -o ro "$1" mnt
    cat "mnt/$2/$3/follow.jsonl"
    exit
fi

mkdir data
echo first | offsetfs append --create data/events-0 > /dev/null
printf 'version=1\n' > data/meta.properties
show 'offsetfs mount -o ro data mnt'
beside 'cat mnt/events/0/follow > seen'
sleep 0.3
# The broker's part. offsetfs itself writes into a directory with meta.properties only when it is told that the broker is stopped.
for n in $(seq 5); do
    echo "event $n" | offsetfs append --take-over data/events-0 > /dev/null
done
until_true '[ "$(wc -l < seen)" = 5 ]'
show 'cat seen'
show 'cat mnt/events/0/by-offset/-2..'
show 'grep -E "^(mode|log_end_offset):" mnt/events/0/status'
