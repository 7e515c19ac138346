#!/usr/bin/env bash
# Planted bugs: do the tests notice what they are there for? Each patch in tests/planted/ makes one plausible mistake in the product's code and names the suite
# that must go red from it. The script makes the mistakes one at a time in a copy below the target folder, builds, and runs only that suite.
#
#   tests/planted.sh          every bug; before the first one, the suites without a bug, which must be green (ten minutes on two cores)
#   tests/planted.sh 07 12    these bugs; that their suites are green without them is left to `cargo test`
#   tests/planted.sh check    whether each patch still applies (a second)
#
# A bug is caught if the build works, a test of the named suite fails, and what it says is what the patch says it must say: a failure for another reason
# counts as nothing. So does a suite that does not come to its end. Ends with `N of N caught`, or with 1.
#
# A patch begins with three lines:
#
#   # bug: what is wrong, in words
#   # caught by: cargo test --test damage -- a_flipped_bit      (after ` -- ` what the tests get)
#   # says: a text that must stand in what the suite prints
#
# The copy has a target folder of its own (target/planted/, some 2 GB, which may be removed at any time): cargo takes two copies of a crate for one, and would
# mix what it built of them. What the crates that we depend on were built to is taken over from the usual one.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
copy=$target/planted/tree
built=$target/planted/target
# A suite that a bug makes wait for ever is ended after so many seconds.
most=600
export CARGO_TARGET_DIR=$built CARGO_INCREMENTAL=1
# Otherwise git would look for the repository that the copy lies in, and apply nothing.
export GIT_CEILING_DIRECTORIES=$root:$target

# field NAME PATCH: what a line of the head says.
field() { sed -n "s/^# $1: //p;/^---/q" "$2"; }

# command_of COMMAND: the part before ` -- `, and arguments_of COMMAND: the part behind it.
command_of() { printf '%s' "${1%% -- *}"; }
arguments_of() { case $1 in *' -- '*) printf '%s' "${1#* -- }" ;; esac; }

# Takes over what the crates that we depend on were built to, as links where nobody writes in place.
take_over() {
    local name kind
    mkdir -p "$built/debug/deps" "$built/debug/build" "$built/debug/.fingerprint"
    for kind in build .fingerprint; do
        for name in "$target/debug/$kind"/*; do
            case ${name##*/} in offsetfs-*) ;; *) cp -a "$name" "$built/debug/$kind/" ;; esac
        done
    done
    for name in "$target"/debug/deps/*.{rlib,rmeta,so,d}; do
        case ${name##*/} in *offsetfs-*) ;; *.d) cp -a "$name" "$built/debug/deps/" ;; *) cp -alf "$name" "$built/debug/deps/" ;; esac
    done
}

# The files without a bug, into the copy: with new times, so that nothing of a bug before is taken for built.
restore() { tar -c --exclude=./target --exclude=./.git --exclude=./fuzz/target . | tar -xm -C "$copy"; }

# restore_files PATCH: the files that a patch touches.
restore_files() { sed -n 's,^+++ b/,,p' "$1" | while read -r file; do cp "$root/$file" "$copy/$file"; done; }

# run COMMAND LOG: builds, which must work, then runs the suite; its status, 100 where the build fails.
run() {
    local command arguments status=0
    read -r -a command <<<"$(command_of "$1")"
    read -r -a arguments <<<"$(arguments_of "$1")"
    (cd "$copy" && env "${command[@]}" --no-run) >"$2" 2>&1 </dev/null || return 100
    (cd "$copy" && timeout -k 10 "$most" env "${command[@]}" -- "${arguments[@]}") >"$2" 2>&1 </dev/null || status=$?
    return "$status"
}

check() {
    local patch line status=0
    for patch in "${patches[@]}"; do
        for line in bug 'caught by' says; do
            [ -n "$(field "$line" "$patch")" ] || { echo "$patch has no line '# $line:'"; status=1; }
        done
        git apply --check --whitespace=nowarn "$patch" || { echo "$patch does not apply any more; make it anew"; status=1; }
    done
    [ "$status" = 0 ] && echo "${#patches[@]} of ${#patches[@]} apply"
    return "$status"
}

patches=()
case ${1:-} in
'' | check) patches=(tests/planted/[0-9][0-9]-*.patch) ;;
*) for number in "$@"; do patches+=(tests/planted/"$number"-*.patch); done ;;
esac
[ ${#patches[@]} -gt 0 ] || { echo "no such bug" >&2; exit 2; }
check
[ "${1:-}" != check ] || exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ -e "$built/taken-over" ] || { take_over && touch "$built/taken-over"; }
mkdir -p "$copy"
restore

if [ $# = 0 ]; then
    for patch in "${patches[@]}"; do field 'caught by' "$patch"; done | sort -u | while read -r suite; do
        run "$suite" "$log" || { tail -n 40 "$log"; echo "red without a bug: $suite"; exit 1; }
        grep -q 'test result: ok. [1-9]' "$log" || { tail -n 40 "$log"; echo "no test: $suite"; exit 1; }
        echo "green without a bug: $suite"
    done
fi

caught=0
echo 'bug - suite - test that went red'
for patch in "${patches[@]}"; do
    bug=$(field bug "$patch") suite=$(field 'caught by' "$patch") says=$(field says "$patch") status=0 begin=$SECONDS
    (cd "$copy" && git apply --whitespace=nowarn "$root/$patch")
    run "$suite" "$log" || status=$?
    restore_files "$patch"
    # A test that fails may speak before the end of its line.
    red=$(sed -n 's/^test \([^ ]*\) \.\.\. FAILED.*/\1/p' "$log" | head -n 1)
    [ -n "$red" ] || red=$(sed -n 's/^ \{4\}\([a-z_0-9:]*\)$/\1/p' "$log" | head -n 1)
    case $status in
    0) verdict='NOT CAUGHT: green' ;;
    100) verdict='NOT CAUGHT: it cannot be built' ;;
    124 | 137) verdict="NOT CAUGHT: no end after $most s" ;;
    *) verdict= ;;
    esac
    [ -n "$verdict" ] || [ -n "$red" ] || verdict='NOT CAUGHT: no test failed'
    [ -n "$verdict" ] || grep -qF -- "$says" "$log" || verdict="NOT CAUGHT: $red fails for another reason"
    number=$(basename "$patch" | cut -c1-2)
    printf '%s %s - %s - %s (%d s)\n' "$number" "$bug" "${suite#cargo test }" "${verdict:-$red}" $((SECONDS - begin))
    if [ -z "$verdict" ]; then caught=$((caught + 1)); else tail -n 25 "$log"; fi
done
echo "$caught of ${#patches[@]} caught"
[ "$caught" = "${#patches[@]}" ]
