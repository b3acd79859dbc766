#!/bin/sh
# Builds the engine with one bug planted at a time and runs its crash tests: each bug must make one fail.
# Prints which test found it, and how long after the tests began.
set -u
cd "$(dirname "$0")/.." || exit 2
bugs=${*:-"ack_before_sync checkpoint_skips_dirty count_kept_on_redirty directory_not_synced epoch_not_synced init_reads_old_image map_after_submission map_before_data no_reserve page_before_log publish_before_copy slot_freed_early superblock_before_log unredone_not_counted"}
found=0
missed=0
for bug in $bugs; do
    RUSTFLAGS="--cfg planted=\"$bug\"" CARGO_TARGET_DIR=target/planted \
        cargo test -q -p millpond --test it --no-run || exit 2
    began=$(date +%s%N)
    RUSTFLAGS="--cfg planted=\"$bug\"" CARGO_TARGET_DIR=target/planted RUST_BACKTRACE=0 \
        timeout 300 cargo test -q -p millpond --test it -- crash_matrix scenarios > target/planted/out.txt 2>&1
    passed=$?
    took=$((($(date +%s%N) - began) / 1000000))
    tests=$(sed -n 's/^    \([a-z]*[_]*[a-z]*::[a-z_]*\)$/\1/p' target/planted/out.txt | sort -u | tr '\n' ' ')
    if [ "$passed" -ne 0 ] && [ -n "$tests" ]; then
        found=$((found + 1))
        printf '%-24s found in %5d ms by %s\n' "$bug" "$took" "$tests"
        grep -m 1 '^crash at\|^internal error\|^opened\|REDO-\|STORE-\|deadlock\|livelock' target/planted/out.txt | cut -c 1-150 | sed 's/^/    first: /'
    else
        missed=$((missed + 1))
        printf '%-24s NOT FOUND after %d ms\n' "$bug" "$took"
    fi
done
printf '%d passed, %d failed\n' "$found" "$missed"
[ "$missed" -eq 0 ]
