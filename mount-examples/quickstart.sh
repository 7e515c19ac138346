#!/usr/bin/env bash
# A log from nothing: builds offsetfs, makes a partition in a temporary folder, mounts it, appends, reads by offset and by time, shows the
# real segment, and unmounts. Each command is printed before its output. Everything is gone at the end.
#
#   bash mount-examples/quickstart.sh
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    printf 'quickstart: %s\n' "$1" >&2
    exit 1
}

command -v cargo >/dev/null || fail 'cargo is missing; install Rust (https://rustup.rs) and try again'
[ -e /dev/fuse ] ||
    fail 'there is no /dev/fuse; load the module (modprobe fuse), or pass the device into the container (docker run --device /dev/fuse --cap-add SYS_ADMIN)'
if [ "$(id -u)" != 0 ]; then
    command -v fusermount3 >/dev/null || fail 'fusermount3 is missing, which mounts for users other than root (Debian: apt-get install fuse3)'
    { [ -r /dev/fuse ] && [ -w /dev/fuse ]; } || fail 'this user may not open /dev/fuse (ls -l /dev/fuse); run it as root'
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/offsetfs-quickstart-XXXXXX")
clean_up() {
    cd /
    if grep -qF " $work/mnt " /proc/self/mountinfo; then
        umount -l "$work/mnt" 2>/dev/null || fusermount3 -u -z "$work/mnt" || return
    fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Says what comes next.
tell() {
    printf '\n# %s\n' "$1"
}

# Prints a command and runs it.
show() {
    printf '$ %s\n' "$1"
    eval "$1"
}

tell 'Build (the first time takes a minute or two).'
show 'cargo build --release'
PATH=$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd):$PATH
cd "$work"

tell 'Make a partition and mount it. The sizes are tiny, so that little data fills several segments; the defaults are those of Kafka.'
show 'mkdir mnt'
show 'offsetfs mount --create demo-0 mnt -o segment.bytes=16384,index.interval.bytes=2048,batch.size=1024'
show 'ls mnt'

tell 'Append: each line becomes one record.'
show 'echo "hello, log" >> mnt/append'
show "printf '%s\n' one two three >> mnt/append"
show 'seq 1 5000 > mnt/append'

tell 'Read by offset.'
show 'cat mnt/by-offset/0'
printf '\n'
show 'cat mnt/by-offset/1..4'
show 'ls -l mnt/by-offset/last'
show 'cat mnt/by-offset/-3..'
show 'cat mnt/by-offset/earliest..latest | wc -l'

tell 'The same as JSON, in the shape that kcat -J prints.'
show 'cat mnt/by-offset/last.json'
if command -v jq >/dev/null; then
    show "jq -r '\"\\(.offset): \\(.payload)\"' mnt/by-offset/-3..latest.jsonl"
fi

tell 'Read by time: a name leads to the first record at or after that time.'
show 'readlink mnt/by-time/5m-ago'
show 'cat mnt/by-time/5m-ago'
printf '\n'
show 'cat mnt/by-time/5m-ago..now | head -n 3'

tell 'What is not there says why.'
show 'cat mnt/by-offset/123456 || cat mnt/errors'

tell 'The real files, byte for byte. Bytes 0-7 of a segment are the base offset of its first batch, byte 16 is 2: record batches of magic 2.'
show 'ls -l mnt/segments'
show 'od -A d -t x1z -N 80 mnt/segments/00000000000000000000.log'
show 'cmp mnt/segments/00000000000000000000.log demo-0/00000000000000000000.log && echo the same bytes'

tell 'How the log stands.'
show 'cat mnt/status'

tell 'Unmount. What stays is an ordinary partition directory, which can be read without a mount, too.'
show 'offsetfs umount mnt'
show 'ls demo-0'
show 'offsetfs cat demo-0 by-offset/0'
printf '\n\n# Done; %s is removed.\n' "$work"
