#!/usr/bin/env bash
# An incident: "what happened between 10:15 and 10:20?"
#
# Why: the time index leads to the first record of a time in a few microseconds, however long the log is. No consumer, no scan from the
# beginning, no arithmetic with offsets: the question is a path. Times without a zone are in the zone of the mount (-o tz=).
. "$(dirname "$0")/common.sh"

# A log of one day, a record every ten seconds, some of them errors between 10:16 and 10:18.
day=1767225600 # 2026-01-01T00:00:00Z
mkdir mnt
offsetfs mount --create app-0 mnt -o tz=UTC
seq 0 10 86390 | awk -v day=$day '{
    level = ($1 >= 36960 && $1 < 37080) ? "ERROR payment refused" : "INFO ok"
    printf "{\"ts\":%d000,\"key\":\"web-%d\",\"payload\":\"%s %d\"}\n", day + $1, $1 % 3, level, $1
}' > mnt/append.jsonl

show 'readlink mnt/by-time/2026-01-01T10:15'
show 'grep -c ERROR mnt/by-time/2026-01-01T10:15..2026-01-01T10:20'
show 'grep ERROR mnt/by-time/2026-01-01T10:15..2026-01-01T10:20 | head -n 3'

# The record around it as JSON, with its key and its time; a link leads to the record, so a suffix goes onto its number.
show 'first=$(basename "$(readlink mnt/by-time/2026-01-01T10:16)"); cat "mnt/by-offset/$first.json"'

# Days are listed. A range of times is a file like any other: wc, cp, diff and less work on it.
show 'ls mnt/by-time | grep 2026'
show 'wc -l < mnt/by-time/2026-01-01T10:00..2026-01-01T11:00'
