#!/usr/bin/env bash
# Copy records from one log into another, whole or filtered, and go on after an interruption.
#
# Why: `append.jsonl` reads what the `.jsonl` files print, so `cat` is the mirror. Keys, headers, times and nulls come along; the
# offsets are given anew. With jq in between it is a filter, and the header `from` says where a record came from.
. "$(dirname "$0")/common.sh"
need jq

mkdir a b
offsetfs mount --create a-0 a
offsetfs mount --create b-0 b -o compression.type=zstd
cat > a/append.jsonl <<'END'
{"ts":1767225600000,"key":"eu","headers":["trace","1"],"payload":"{\"amount\":7}"}
{"ts":1767225601000,"key":"us","payload":"{\"amount\":900}"}
{"ts":1767225602000,"key":"eu","payload":null}
{"ts":1767225603000,"key":"us","payload":"{\"amount\":1000}"}
END

# All of it.
show 'cat a/by-offset/earliest..latest.jsonl > b/append.jsonl'
show 'diff <(jq -c "del(.topic)" a/by-offset/earliest..latest.jsonl) <(jq -c "del(.topic)" b/by-offset/earliest..latest.jsonl) && echo the same'

# The large ones only, marked with where they came from.
show "jq -c 'select((.payload // \"{}\" | fromjson | .amount // 0) > 100) | .headers += [\"from\", \"a@\\(.offset)\"]' a/by-offset/earliest..latest.jsonl > b/append.jsonl"
show 'cat b/by-offset/4..latest.jsonl'

# What comes later is copied from where the last copy ended.
next=$(awk '/^log_end_offset:/ { print $2 }' a/status)
echo late > a/append
show "cat a/by-offset/$next..jsonl > b/append.jsonl"
show 'cat b/by-offset/last'
printf '\n'
