# What the examples share: a folder of their own that goes at the end with all that is mounted in it, and commands that are shown before they run.
# Sourced, not run. OFFSETFS names the program; without it, it is looked for in PATH and in target/.
set -euo pipefail

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
OFFSETFS=${OFFSETFS:-$(command -v offsetfs || ls "$here"/../target/release/offsetfs "$here"/../target/debug/offsetfs 2>/dev/null | head -n 1 || true)}
[ -x "$OFFSETFS" ] || fail 'there is no offsetfs; build it (cargo build --release), or say where it is (OFFSETFS=...)'

offsetfs() {
    "$OFFSETFS" "$@"
}

# need TOOL...: the programs that an example uses beside coreutils.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
}

work=$(mktemp -d "${TMPDIR:-/tmp}/offsetfs-example-XXXXXX")
helpers=()

clean_up() {
    local pid point
    cd /
    for pid in "${helpers[@]}"; do
        kill -- "-$pid" 2>/dev/null || true
    done
    awk -v below="$work/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r point; do
        offsetfs umount -l "$point" || true
    done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$work"

# show COMMAND: prints a command and runs it.
show() {
    printf '$ %s\n' "$1"
    eval "$1"
}

# beside COMMAND: runs a command beside the script until the script ends, all its processes in a group of their own.
beside() {
    setsid bash -c "$1" &
    helpers+=($!)
}

# until_true COMMAND: waits up to ten seconds for what happens beside the script.
until_true() {
    local n
    for n in $(seq 200); do
        if eval "$1"; then
            return 0
        fi
        sleep 0.05
    done
    fail "waited in vain: $1"
}
