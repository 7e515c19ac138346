#!/usr/bin/env bash
# Look into a broker's backup (or a stopped broker's data directory) without a cluster.
#
#   inspect-a-backup.sh [DIRECTORY]      without one, a small backup is made for the demonstration
#
# Why: the directory is mounted as it is, read-only, and nothing is written into it. Topics and partitions are folders, `.other` has what
# a broker had put aside, `+files` its checkpoints, and a range of times over a topic merges its partitions.
. "$(dirname "$0")/common.sh"

backup=${1-}
if [ -z "$backup" ]; then
    backup=$work/backup
    mkdir backup
    for partition in 0 1; do
        for n in $(seq $partition 2 9); do
            printf '{"ts":%d,"key":"order-%d","payload":"order %d of partition %d"}\n' $((1767225600000 + n * 1000)) "$n" "$n" $partition
        done | offsetfs append --create --format jsonl "backup/orders-$partition" > /dev/null
    done
    seq 3 | offsetfs append --create backup/audit-log-0 > /dev/null
    printf 'version=1\ncluster.id=demo\nnode.id=1\n' > backup/meta.properties
fi

mkdir mnt
show 'offsetfs mount -o ro,tz=UTC "$backup" mnt'
show 'ls mnt'
for topic in mnt/[!+]*/; do
    for partition in "$topic"[0-9]*/; do
        printf '%s: ' "${partition#mnt/}"
        awk '/^log_start_offset:/ { a = $2 } /^log_end_offset:/ { b = $2 } /^bytes:/ { c = $2 } END { print a " to " b ", " c " bytes" }' "$partition/status"
    done
done
if [ $# = 0 ]; then
    show 'cat mnt/orders/by-time/2026-01-01..2026-01-02.jsonl | tail -n 2'
    show 'cat mnt/audit-log/0/by-offset/last; echo'
    show 'cat mnt/+files/meta.properties'
fi
# Whether it is sound: a line for each finding.
show 'offsetfs check "$backup" && echo sound'
