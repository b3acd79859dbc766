#!/bin/sh
# One build of millpond beside another, at the same time: each with one client on a CPU of its own, which they exchange from
# pair to pair, so that what disturbs the machine disturbs both. All data in the pool. Prints transactions a second of
# each pair of runs, and their ratio, then quartiles and median of the ratios. Needs two CPUs.
#
# side_by_side.sh OLD NEW DIR [PAIRS [OPTION...]]: OLD and NEW are programs; a database for each is made in a directory of
# its own in DIR, and removed.
set -eu
usage="usage: side_by_side.sh OLD NEW DIR [PAIRS [OPTION...]]"
old=${1:?"$usage"}
new=${2:?"$usage"}
parent=${3:?"$usage"}
pairs=${4:-10}
if [ $# -gt 4 ]; then shift 4; else set --; fi
mkdir -p "$parent"
dir=$(mktemp -d "$parent/millpond.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' INT TERM

pin=
# bench PROGRAM NAME ARGUMENT...: a command of bench on the database of that name, pinned as `pin` says.
bench() {
    program=$1 name=$2
    shift 2
    $pin "$program" -q bench --dir "$dir/$name" --tables=4 --table-size=250000 --buffer-pool-size=512MiB "$@"
}

# rate PROGRAM NAME ARGUMENT...: transactions a second, in a file of that name.
rate() {
    program=$1 name=$2
    shift 2
    bench "$program" "$name" --threads=1 --rand-type=uniform --time=0 --report-interval=0 "$@" run |
        sed -n 's/.*transactions:.*(\([0-9.]*\) per sec.*/\1/p' > "$dir/$name.rate"
}

bench "$old" old --threads=4 "$@" oltp_update_index prepare > "$dir/said"
bench "$new" new --threads=4 "$@" oltp_update_index prepare > "$dir/said"
for work in oltp_point_select:12000000 oltp_update_index:1000000; do
    workload=${work%:*} pair=0
    : > "$dir/ratios"
    while [ $pair -lt "$pairs" ]; do
        cpu=$((pair % 2)) pair=$((pair + 1))
        (pin="taskset -c $cpu" && rate "$old" old --events=${work#*:} "$@" "$workload") &
        other=$!
        (pin="taskset -c $((1 - cpu))" && rate "$new" new --events=${work#*:} "$@" "$workload")
        wait $other
        ratio=$(awk "BEGIN { printf \"%.3f\", $(cat "$dir/new.rate") / $(cat "$dir/old.rate") }")
        echo "$workload $(cat "$dir/old.rate") $(cat "$dir/new.rate") $ratio"
        echo "$ratio" >> "$dir/ratios"
    done
    sort -n "$dir/ratios" | awk -v workload=$workload '{ of[NR] = $1 } function at(share, place) {
        place = 1 + (NR - 1) * share; return of[int(place)] + (of[int(place + 0.999)] - of[int(place)]) * (place - int(place)) }
        END { printf "%s median %.3f, quartiles %.3f and %.3f\n", workload, at(0.5), at(0.25), at(0.75) }'
done
