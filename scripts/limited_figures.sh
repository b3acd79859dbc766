#!/bin/sh
# Figures at full load, on a device that makes so few writes a second, and under a quota of one CPU: what cloud volumes
# and containers are like. Limits are set through cgroups, version 1 or 2; where none can be made, that is said, and nothing is measured.
#
# limited_figures.sh DIR [SECONDS [ROUNDS [FULL_SECONDS]]]: databases of some GiB are made in a directory of their own in DIR, and removed.
set -u
millpond=$(cd "$(dirname "$0")/.." && pwd)/target/release/millpond
parent=${1:?"usage: limited_figures.sh DIR [SECONDS [ROUNDS [FULL_SECONDS]]]"}
seconds=${2:-20}
rounds=${3:-3}
full_seconds=${4:-60}
writes=1500
reads=16000
table="--tables=4 --table-size=250000 --threads=16 --rand-type=uniform"
loose="--durability=background(100ms)"
mkdir -p "$parent" || exit 1
case $(df --output=fstype "$parent" | tail -n 1) in
    tmpfs) echo "'$parent' is in memory: name a directory on a disk" >&2; exit 1 ;;
esac
dir=$(mktemp -d "$parent/millpond.XXXXXX") || exit 1
memory=
disk=$(stat -c '%Hd:%Ld' "$dir")
# A partition has no limit of its own.
if [ -e "/sys/dev/block/$disk/partition" ]; then disk=$(cat "/sys/dev/block/$disk/../dev"); fi
groups=
# shellcheck disable=SC2086 # Words.
trap 'for group in $groups; do rmdir "$group"; done; rm -rf "$dir" ${memory:+"$memory"}' EXIT
trap 'exit 2' INT TERM

# make_group NAME: makes a cgroup with a limit, and says where; nothing, if it cannot be made.
make_group() {
    case $1 in
        writes) v1=/sys/fs/cgroup/blkio v2=io.max file=blkio.throttle.write_iops_device limit="$disk $writes" limit2="$disk wiops=$writes" ;;
        reads) v1=/sys/fs/cgroup/blkio v2=io.max file=blkio.throttle.read_iops_device limit="$disk $reads" limit2="$disk riops=$reads" ;;
        quota) v1=/sys/fs/cgroup/cpu v2=cpu.max file=cpu.cfs_quota_us limit=100000 limit2="100000 100000" ;;
    esac
    if [ -d $v1 ]; then
        group=$v1/millpond-$$-$1
    else
        group=/sys/fs/cgroup/millpond-$$-$1 file=$v2 limit=$limit2
    fi
    mkdir "$group" 2> /dev/null && groups="$groups $group" && echo "$limit" > "$group/$file" 2> /dev/null && return
    echo "no limit of $1 can be set here (cgroup '$group'): not measured"
    return 1
}

# run NAME GROUP DIRECTORY OPTIONS...: a row of the table; GROUP may be empty.
run() {
    name=$1 within=$2 at=$3
    shift 3
    stolen=$(awk '/^cpu / { print $9 }' /proc/stat) began=$(date +%s)
    # shellcheck disable=SC2086,SC2016 # Words; expanded there.
    sh -c '[ -z "$0" ] || echo $$ > "$0/cgroup.procs"; exec "$@"' "$within" $prefix "$millpond" --quiet bench --dir "$at" \
        $table --time="$time" "$@" oltp_update_index run > "$dir/out.txt" 2> "$dir/err.txt" || { cat "$dir/err.txt"; exit 1; }
    stolen=$(awk -v before="$stolen" -v s=$(($(date +%s) - began)) '/^cpu / { printf "%d", ($9 - before) / s }' /proc/stat)
    awk -v name="$name" -v stolen="$stolen" '
        /^\[/ && /tps:/ { for (i = 1; i < NF; i++) if ($i == "tps:") { n++; sum += $(i + 1); squares += $(i + 1) ^ 2 } }
        /throttle:/ { sub(/.*throttle: /, ""); throttle += $1 }
        /median rate:/ { median = $3; for (i = 1; i < NF; i++) if ($i == "second:") worst = $(i + 1) }
        /brownout/ { brownout = $6 }
        / max: +[0-9.]+$/ { slowest = $2 }
        /page writes:/ { kib = $5 }
        END {
            mean = sum / n; deviation = sqrt(squares / n - mean * mean)
            printf "| %s | %d | %d (%d %%) | %s s | %.2f | %s ms | %d %% | %.0f KiB | %d %% |\n", name, median, worst, worst * 100 / median,
                brownout, deviation / mean, slowest, throttle / n, kib, stolen
        }' "$dir/out.txt"
}

# load DIRECTORY OPTIONS...
load() {
    at=$1
    shift
    # shellcheck disable=SC2086 # Words.
    "$millpond" --quiet bench --dir "$at" $table "$@" oltp_update_index prepare > "$dir/out.txt" 2>&1 || { cat "$dir/out.txt"; exit 1; }
}

heading() {
    printf '\n%s\n\n| run | median/s | worst second | brownout | variation | slowest | throttle | a page write | stolen |\n|---|---|---|---|---|---|---|---|---|\n' "$1"
}

prefix= time=$full_seconds
load "$dir/cow" --redo-capacity=256MiB
heading "The device as it is, full load, data 4 times the pool, 16 writers:"
run "durable at commit" "" "$dir/cow" --buffer-pool-size=64MiB
run "background durability" "" "$dir/cow" --buffer-pool-size=64MiB $loose
if make_group reads; then
    heading "The same held to $reads reads a second, so that other users of the device do not show:"
    run "durable at commit" "$group" "$dir/cow" --buffer-pool-size=64MiB
    run "background durability" "$group" "$dir/cow" --buffer-pool-size=64MiB $loose
fi
time=$seconds
if make_group writes; then
    load "$dir/in-place" --redo-capacity=256MiB --page-store=in_place
    heading "A device of $writes writes a second, data 4 times the pool, 16 writers, background durability:"
    for round in $(seq "$rounds"); do
        run "in place, $round" "$group" "$dir/in-place" --buffer-pool-size=64MiB $loose
        run "copy on write, $round" "$group" "$dir/cow" --buffer-pool-size=64MiB $loose
    done
    heading "The same device, all data in the pool:"
    time=$((seconds * 5))
    run "redo 256 MiB" "$group" "$dir/cow" --buffer-pool-size=512MiB $loose
    run "redo 256 MiB, durable at commit" "$group" "$dir/cow" --buffer-pool-size=512MiB
    run "redo 256 MiB, in place" "$group" "$dir/in-place" --buffer-pool-size=512MiB $loose
    run "redo 2 GiB" "$group" "$dir/cow" --buffer-pool-size=512MiB --redo-capacity=2GiB $loose
fi
time=$seconds
if make_group quota; then
    rm -rf "$dir/cow" "$dir/in-place"
    load "$dir/cow"
    memory=$(mktemp -d /dev/shm/millpond.XXXXXX) && load "$memory" --cached=true
    heading "All data in the pool, one CPU, durable at commit, by a quota of 100 ms in 100 ms and by binding:"
    for round in $(seq "$rounds"); do
        prefix="taskset -c 0"
        run "bound to one, $round" "" "$dir/cow" --buffer-pool-size=512MiB
        prefix=
        run "quota of one, $round" "$group" "$dir/cow" --buffer-pool-size=512MiB
        prefix="taskset -c 0"
        run "log in memory, bound to one, $round" "" "$memory" --buffer-pool-size=512MiB --cached=true
        prefix=
        run "log in memory, quota of one, $round" "$group" "$memory" --buffer-pool-size=512MiB --cached=true
    done
fi
