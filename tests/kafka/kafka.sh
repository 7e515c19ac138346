#!/usr/bin/env bash
# Apache Kafka 4.3.1 for the tests that ask it. It needs Java 17 and, the first time, Maven and the network (54 MB).
#
#   kafka.sh jars                fetches the jars unless they are there, and prints their folder
#   kafka.sh run CLASS ARG...    runs a class of Kafka
#   kafka.sh dump FILE...        dumps .log, .index, .timeindex, ... with Kafka's own tool, records and all; Kafka checks them meanwhile
#
# KAFKA_HEAP sets the heap (default 512m). The jars lie in ${XDG_CACHE_HOME:-$HOME/.cache}/offsetfs-kafka/4.3.1.
set -euo pipefail

version=4.3.1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/offsetfs-kafka
jars=$cache/$version

fail() {
    printf 'kafka.sh: %s\n' "$1" >&2
    exit 3
}

fetch() {
    [ ! -e "$jars/.complete" ] || return 0
    command -v mvn >/dev/null || fail 'mvn is missing, and the jars of Kafka were not fetched yet (Debian: apt-get install maven)'
    mkdir -p "$jars"
    # One of several tests that start at once fetches; the others wait for it.
    exec 9>"$cache/.$version.lock"
    flock 9
    [ ! -e "$jars/.complete" ] || return 0
    mvn --quiet --batch-mode -Dstyle.color=never -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" >&2 ||
        fail 'Maven could not fetch the jars of Kafka'
    touch "$jars/.complete"
    exec 9>&-
}

run() {
    command -v java >/dev/null || fail 'java is missing (Debian: apt-get install openjdk-17-jre-headless)'
    fetch
    exec java "-Xmx${KAFKA_HEAP:-512m}" -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "$jars/*" "$@"
}

case ${1-} in
jars)
    fetch
    printf '%s\n' "$jars"
    ;;
run)
    shift
    run "$@"
    ;;
dump)
    shift
    [ $# -gt 0 ] || fail 'dump: which files?'
    files=$(IFS=,; printf '%s' "$*")
    run org.apache.kafka.tools.DumpLogSegments --deep-iteration --print-data-log --files "$files"
    ;;
*)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
