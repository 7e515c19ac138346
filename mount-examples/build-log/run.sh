#!/usr/bin/env bash
# A log as an input of make: the report is remade when a record has come, and left alone when none has.
#
# Why: the mtime of a record's file is the record's own time, and `by-offset/last` is a link to the newest one, so make needs no
# stamp file. The build may also write its own log: each line of its output is a record, with the time at which it came.
. "$(dirname "$0")/../common.sh"
need make

mkdir mnt
offsetfs mount --create events-0 mnt
cp "$here/build-log/Makefile" .
printf '%s\n' b a b > mnt/append
show 'make -s LOG=mnt'
show 'cat report.txt'
show 'make LOG=mnt'
sleep 0.1
show 'echo c > mnt/append'
show 'make -s LOG=mnt'
# The build's own log.
mkdir log
offsetfs mount --create build-0 log
show 'make -B LOG=mnt 2>&1 | tee log/append'
show 'cat log/by-time/5m-ago..now'
