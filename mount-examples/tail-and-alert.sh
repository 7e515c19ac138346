#!/usr/bin/env bash
# Watch a log and raise an alert: tail, grep and a shell loop.
#
# Why: `decoded/active.txt` is the newest segment in plain lines, and `tail -F` follows it over a roll like any rotated file (it looks for
# the new one after a few idle rounds, so it is for logs that roll once in a while). `follow` has no such gap: a read waits until
# a record comes, over every roll. Both end with Ctrl-C like every pipeline.
. "$(dirname "$0")/common.sh"

mkdir mnt
offsetfs mount --create app-0 mnt -o segment.bytes=10000
echo 'INFO start' > mnt/append

# The alert: here it is a line in a file, elsewhere a mail or a page.
beside 'tail -n 0 -s 0.1 --max-unchanged-stats=1 -F mnt/decoded/active.txt 2> /dev/null | grep --line-buffered ERROR |
    while read -r line; do echo "ALERT $line" >> alerts; done'
# The same with follow, and with the envelope: who, when, at which offset.
beside 'grep --line-buffered "\"payload\":\"ERROR" mnt/follow.jsonl > alerts.jsonl'
until_true '[ -e alerts.jsonl ]'
sleep 0.5

# The application, over several segments.
for n in $(seq 200); do
    if [ $((n % 50)) = 0 ]; then echo "ERROR disk $n"; else echo "INFO fine $n"; fi
    sleep 0.01
done > mnt/append

until_true '[ "$(cat alerts 2> /dev/null | wc -l)" -ge 4 ] && [ "$(cat alerts.jsonl | wc -l)" -ge 4 ]'
show 'cat alerts'
show 'tail -n 1 alerts.jsonl'
show 'ls mnt/decoded/*.txt | wc -l'
