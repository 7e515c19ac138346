#!/usr/bin/env bash
# The long forms of the suites that draw their cases; their short forms are part of .ci/run. Each prints what it counted, and ends with an error where a
# promise was broken.
#
#   tests/long.sh FORM [NUMBER [SEED]]
#
# FORM         NUMBER without one given, and what it counts
# states       10000000  disks that a crash may leave, drawn from SEED
# workloads    2         every workload of up to so many steps, struck by every fault at every operation
# kills        10000     kill -9 of a process that appends
# mounts       2000      kill -9 of a daemon with shells that write through its mount (root)
# cuts         1000      power cuts of ext4 on a loop device (root)
# images       1000      what a power cut may leave of the blocks that ext4 wrote behind the last flush, mounted (root)
# fuzz         1800      seconds for each fuzz target
# schedules    10000     orders of threads at random, and as many with few switches, for each test
# opens        10000     opens and closes of each kind of file in a mount, which leave nothing behind (root)
# stress       600       seconds of everything at once
# differential 10000     generated directories that Kafka's log layer and offsetfs read, from SEED on (Java 17, Maven)
#
# Without a SEED it comes from the clock and is printed. All but fuzz and schedules use as many processors as they may: `taskset -c 0 nice tests/long.sh
# ...` leaves the others alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    sed -n '2,/^set/s/^# \?//p' "$0" >&2
    exit 2
}

# release TEST [NAME...]: runs a suite, or single tests of it, optimised.
release() {
    local suite=$1
    shift
    CARGO_INCREMENTAL=0 cargo test --release --test "$suite" -- --nocapture "$@"
}

[ $# -ge 1 ] && [ $# -le 3 ] || usage
form=$1
number=${2:-}
seed=${3:-}
case $form:$number$seed in
*:*[!0-9]*) usage ;;
states:* | differential:*) ;;
*) [ -z "$seed" ] || usage ;;
esac
begin=$SECONDS
case $form in
states)
    OFFSETFS_CRASH_STATES=${number:-10000000} OFFSETFS_CRASH_SEED=${seed:-$(date +%s)} release crash nothing_acknowledged
    ;;
workloads) OFFSETFS_CRASH_LENGTH=${number:-2} release crash short_workloads ;;
kills) OFFSETFS_KILL_CYCLES=${number:-10000} release kill a_killed_writer ;;
mounts) OFFSETFS_TEST_ROOT=1 OFFSETFS_KILL_CYCLES=${number:-2000} release kill a_killed_daemon ;;
cuts) OFFSETFS_TEST_ROOT=1 OFFSETFS_POWER_CYCLES=${number:-1000} release power survives_a_power_cut ;;
images) OFFSETFS_TEST_ROOT=1 OFFSETFS_POWER_IMAGES=${number:-1000} release power behind_the_last_flush ;;
fuzz) fuzz/run "${number:-1800}" ;;
schedules)
    export OFFSETFS_SCHEDULES=${number:-10000} CARGO_INCREMENTAL=0
    cargo test --features shuttle --test schedules
    cargo test --features shuttle --lib schedules::
    ;;
opens) OFFSETFS_TEST_ROOT=1 OFFSETFS_LOAD_OPENS=${number:-10000} release load growth ;;
stress) OFFSETFS_STRESS_SECONDS=${number:-600} release stress ;;
differential)
    OFFSETFS_TEST_KAFKA=1 OFFSETFS_DIFFERENTIAL=${number:-10000} OFFSETFS_TEST_SEED=${seed:-$(date +%s)} release kafka we_read_what_kafka_reads
    ;;
*) usage ;;
esac
printf '\n%s: done after %d s\n' "$form" $((SECONDS - begin))
