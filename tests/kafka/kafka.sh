#!/usr/bin/env bash
# Apache Kafka 4.3.1 for the tests that ask it. It needs Java 17 (the JDK for Java files) and, the first
# time, Maven and the network (54 MB).
#
#   kafka.sh jars                fetches the jars unless they are there, and prints their folder
#   kafka.sh run CLASS ARG...    runs a class of Kafka, or a Java file that uses it (this needs the JDK)
#   kafka.sh dump FILE...        dumps .log, .index, .timeindex, ... with Kafka's own tool, records and all; Kafka checks them meanwhile
#
#   kafka.sh format FOLDER PORT CONTROLLER_PORT
#                                makes FOLDER/server.properties and FOLDER/data for a broker of one node on loopback
#   kafka.sh broker FOLDER       runs that broker in the foreground; TERM stops it well
#
# KAFKA_HEAP sets the heap (default 512m), KAFKA_LOG what is logged (default error). The jars lie in ${XDG_CACHE_HOME:-$HOME/.cache}/offsetfs-kafka/4.3.1.
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
    exec java "-Xmx${KAFKA_HEAP:-512m}" "-Dorg.slf4j.simpleLogger.defaultLogLevel=${KAFKA_LOG:-error}" -cp "$jars/*" "$@"
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
format)
    [ $# -eq 4 ] || fail 'format: which folder, which two ports?'
    mkdir -p "$2/data"
    cat >"$2/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$4
listeners=PLAINTEXT://127.0.0.1:$3,CONTROLLER://127.0.0.1:$4
advertised.listeners=PLAINTEXT://127.0.0.1:$3
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$2/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.retention.hours=-1
log.message.timestamp.after.max.ms=9223372036854775807
auto.create.topics.enable=false
END
    run kafka.tools.StorageTool format -t AAAAAAAAQACAAAAAAAAAAQ -c "$2/server.properties"
    ;;
broker)
    [ $# -eq 2 ] || fail 'broker: which folder?'
    run kafka.Kafka "$2/server.properties"
    ;;
*)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
