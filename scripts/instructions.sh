#!/bin/sh
# One build of millpond against another by what cannot be disturbed: the instructions that a client's thread carries out
# for one transaction, with all data in the pool. Prints those of each, and their ratio. Needs valgrind.
#
# instructions.sh OLD NEW DIR [OPTION...]: OLD and NEW are programs; a database for each is made in a directory of its own
# in DIR, and removed.
set -eu
usage="usage: instructions.sh OLD NEW DIR [OPTION...]"
old=${1:?"$usage"}
new=${2:?"$usage"}
parent=${3:?"$usage"}
shift 3
command -v valgrind > /dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2 && exit 2; }
mkdir -p "$parent"
dir=$(mktemp -d "$parent/millpond.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' INT TERM

# client PROGRAM NAME WORKLOAD EVENTS OPTION...: instructions of the one client of a run.
client() {
    program=$1 name=$2 workload=$3 events=$4
    shift 4
    rm -f "$dir"/trace*
    valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$dir/trace" "$program" -q bench --dir "$dir/$name" \
        --table-size=20000 --buffer-pool-size=64MiB --rand-type=uniform --time=0 --events="$events" --report-interval=0 "$@" \
        "$workload" run > "$dir/said" 2>&1
    # What only a client does.
    trace=$(grep -l 'fn=.*worker::Worker<.*>::execute' "$dir"/trace-*) ||
        { echo "instructions.sh: no thread of $program runs Worker::execute: inlined, or renamed" >&2 && exit 2; }
    sed -n 's/^totals: //p' "$trace"
}

for name in old new; do
    [ $name = old ] && program=$old || program=$new
    "$program" -q bench --dir "$dir/$name" --table-size=20000 --buffer-pool-size=64MiB "$@" oltp_update_index prepare > "$dir/said"
    for workload in oltp_point_select oltp_update_index; do
        # The difference of two runs: what begins and ends one is not counted.
        few=$(client "$program" $name $workload 20000 "$@")
        many=$(client "$program" $name $workload 120000 "$@")
        echo "$name $workload $(((many - few) / 100000))"
    done
done | awk '{ print $2, $1, $3; if ($1 == "old") of[$2] = $3; else printf "%s ratio %.3f\n", $2, $3 / of[$2] }'
