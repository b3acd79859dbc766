#!/bin/sh
# Builds the engine with one bug planted at a time and runs its crash tests: each bug must make one fail.
# Prints which test found it, and how long after the tests began.
set -u
cd "$(dirname "$0")/.." || exit 2
bugs=${*:-"ack_before_sync superblock_before_log slot_freed_early page_before_log map_before_data checkpoint_skips_dirty"}
found=0
missed=0
for bug in $bugs; do
    RUSTFLAGS="--cfg planted=\"$bug\"" CARGO_TARGET_DIR=target/planted \
        cargo test -q -p millpond --test it --no-run || exit 2
    began=$(date +%s%N)
    RUSTFLAGS="--cfg planted=\"$bug\"" CARGO_TARGET_DIR=target/planted RUST_BACKTRACE=0 \
        cargo test -q -p millpond --test it crash_matrix > target/planted/out.txt 2>&1
    passed=$?
    took=$((($(date +%s%N) - began) / 1000000))
    tests=$(sed -n 's/^    \(crash_matrix::[a-z_]*\)$/\1/p' target/planted/out.txt | sort -u | tr '\n' ' ')
    if [ "$passed" -ne 0 ] && [ -n "$tests" ]; then
        found=$((found + 1))
        printf '%-24s found in %5d ms by %s\n' "$bug" "$took" "$tests"
        sed -n 's/^crash at boundary/    first: crash at boundary/p' target/planted/out.txt | head -n 1
    else
        missed=$((missed + 1))
        printf '%-24s NOT FOUND after %d ms\n' "$bug" "$took"
    fi
done
printf '%d passed, %d failed\n' "$found" "$missed"
[ "$missed" -eq 0 ]
