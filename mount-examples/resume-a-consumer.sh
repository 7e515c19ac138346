#!/usr/bin/env bash
# A consumer that goes on where it stopped: its offset lies in a file.
#
# Why: a range from the saved offset to the end is one `cat`. The offset of the next record is saved after the work, in a file that is
# renamed into place, so that a crash repeats at most the last record (at least once, as with a consumer group).
. "$(dirname "$0")/common.sh"
need jq

mkdir mnt
offsetfs mount --create jobs-0 mnt

# consume: works on everything that is there, then ends. CRASH_AFTER makes it stop half-way.
consume() {
    local next=0 line offset
    if [ -e next ]; then
        next=$(cat next)
    fi
    while read -r line; do
        offset=$(jq -r .offset <<< "$line")
        jq -r '"did \(.offset): \(.payload)"' <<< "$line" >> done.log
        echo $((offset + 1)) > next.new
        sync next.new
        mv next.new next
        if [ "$offset" = "${CRASH_AFTER:-none}" ]; then
            return 1
        fi
    done < <(cat "mnt/by-offset/$next..latest.jsonl")
}

printf 'job %s\n' a b c d e > mnt/append
show 'CRASH_AFTER=2 consume || echo "stopped; the next is $(cat next)"'
printf 'job %s\n' f g > mnt/append
show 'consume'
show 'cat done.log'
