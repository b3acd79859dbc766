#!/bin/sh
# One build of millpond against another, in turns on the same data: reads by two threads and updates by sixteen, all in
# the pool. Prints transactions a second of each pair of runs, and their ratio; of the ratios the median counts.
#
# against.sh OLD NEW DIR [PAIRS [OPTION...]]: OLD and NEW are programs; a database for each is made in a directory of its
# own in DIR, and removed.
set -eu
usage="usage: against.sh OLD NEW DIR [PAIRS [OPTION...]]"
old=${1:?"$usage"}
new=${2:?"$usage"}
parent=${3:?"$usage"}
pairs=${4:-20}
if [ $# -gt 4 ]; then shift 4; else set --; fi
mkdir -p "$parent"
dir=$(mktemp -d "$parent/millpond.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' INT TERM

# bench PROGRAM NAME ARGUMENT...: a command of bench on the database of that name.
bench() {
    program=$1 name=$2
    shift 2
    "$program" -q bench --dir "$dir/$name" --tables=4 --table-size=250000 --buffer-pool-size=512MiB "$@"
}

# rate PROGRAM NAME WORKLOAD OPTION...: transactions a second.
rate() {
    program=$1 name=$2 workload=$3
    shift 3
    case $workload in
        oltp_point_select) threads=2 events=6000000 ;;
        *) threads=16 events=300000 ;;
    esac
    bench "$program" "$name" --threads=$threads --rand-type=uniform --time=0 --events=$events --report-interval=0 "$@" \
        "$workload" run | sed -n 's/.*transactions:.*(\([0-9.]*\) per sec.*/\1/p'
}

bench "$old" old --threads=4 "$@" oltp_update_index prepare > "$dir/said"
bench "$new" new --threads=4 "$@" oltp_update_index prepare > "$dir/said"
for workload in oltp_point_select oltp_update_index; do
    pair=1
    while [ "$pair" -le "$pairs" ]; do
        a=$(rate "$old" old $workload "$@")
        b=$(rate "$new" new $workload "$@")
        echo "$workload $a $b" | awk '{ printf "%s %.0f %.0f %.3f\n", $1, $2, $3, $3 / $2 }'
        pair=$((pair + 1))
    done
done | tee "$dir/pairs"
for workload in oltp_point_select oltp_update_index; do
    awk -v workload=$workload '$1 == workload { print $4 }' "$dir/pairs" | sort -n |
        awk -v workload=$workload '{ all[NR] = $1 } END { print workload, "median", all[int((NR + 1) / 2)] }'
done
