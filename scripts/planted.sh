#!/bin/sh
# Builds the engine with one bug planted at a time and runs its crash tests, or the model of the code that it is in: each
# bug must make one fail.
# Prints which test found it, and how long after the tests began. A run of all bugs begins with the same tests
# without any: they must pass.
set -u
cd "$(dirname "$0")/.." || exit 2
bugs=${*:-"ack_before_sync build_forgets_changes build_takes_any_duplicate catch_up_without_expect checkpoint_skips_dirty chunks_kept count_kept_on_redirty directory_not_synced dropped_image_freed epoch_not_synced failed_read_tells_nobody frames_lost_on_cancel free_not_replayed freed_id_given_out_early freed_image_named freed_page_written image_ahead_not_looked_at image_taken_for_durable index_taken_for_orphan init_reads_old_image latch_parked_forgotten latch_readers_pass load_named_before_durable load_not_given_back load_takes_any_duplicate load_txn_not_logged log_not_looked_at log_not_written_again losers_forgotten map_after_submission map_before_data map_places_short next_leader_forgotten no_reserve notes_not_given_back old_entry_kept page_before_log publish_before_copy purge_removes_what_is_there ring_added_beside_sync route_of_split_page row_in_flight_not_locked row_not_expected row_read_unlocked rows_not_first slot_freed_early stale_read_installs_page superblock_before_log tag_not_compared ticket_not_looked_for two_read_one_page txn_ids_forgotten undo_page_left_early undone_mark_not_purged unique_not_demanded unredone_not_counted waiters_forgotten_on_failure"}

# Has the engine built with this bug from now on.
plant() {
    # Around the compiler of this workspace's crates alone: what they depend on is built once for all bugs.
    wrapper=$PWD/target/planted/wrappers/$1
    mkdir -p target/planted/wrappers
    # shellcheck disable=SC2016 # For the wrapper to expand.
    printf '#!/bin/sh\nrustc=$1\nshift\nexec "$rustc" --cfg "planted=\\"%s\\"" "$@"\n' "$1" > "$wrapper"
    chmod +x "$wrapper"
    export RUSTC_WORKSPACE_WRAPPER="$wrapper" CARGO_TARGET_DIR=target/planted
}

if [ $# -eq 0 ]; then
    plant none
    if ! { cargo test -q -p millpond --lib --test it && cargo test -q -p models --tests; } > target/planted/out.txt 2>&1; then
        echo "without a bug a test fails, so one that fails with a bug shows nothing: see target/planted/out.txt"
        exit 2
    fi
    echo "without a bug: all tests passed"
fi

found=0
missed=0
for bug in $bugs; do
    filter=
    case $bug in
        latch_*) tests="-p models --test latch" ;;
        frames_lost_on_cancel | ticket_not_looked_for) tests="-p models --test free_frames" ;;
        failed_read_tells_nobody | stale_read_installs_page | two_read_one_page) tests="-p models --test page_reads" ;;
        next_leader_forgotten | waiters_forgotten_on_failure) tests="-p models --test commits" ;;
        catch_up_without_expect) tests="-p millpond --lib" filter="index_build" ;;
        dropped_image_freed) tests="-p millpond --lib" filter="store" ;;
        build_* | notes_not_given_back) tests="-p millpond --test it" filter="index_builds" ;;
        load_*) tests="-p millpond --test it" filter="bulk_load" ;;
        log_not_looked_at) tests="-p millpond --test it" filter="failing_syncs" ;;
        image_ahead_not_looked_at) tests="-p millpond --test it" filter="in_place" ;;
        image_taken_for_durable | log_not_written_again) tests="-p millpond --test it" filter="killed" ;;
        tag_not_compared) tests="-p millpond --test it" filter="lost_writes" ;;
        route_of_split_page) tests="-p millpond --test it" filter="races" ;;
        purge_removes_what_is_there | txn_ids_forgotten | undo_page_left_early) tests="-p millpond --test it" filter="rows" ;;
        chunks_kept) tests="-p millpond --test it" filter="long_values" ;;
        row_read_unlocked | rows_not_first) tests="-p millpond --test it" filter="large_table_batches" ;;
        losers_forgotten | row_in_flight_not_locked | undone_mark_not_purged) tests="-p millpond --test it" filter="large_batches" ;;
        index_taken_for_orphan | old_entry_kept | row_not_expected | unique_not_demanded) tests="-p millpond --test it" filter="tables" ;;
        free_not_replayed | freed_*) tests="-p millpond --test it" filter="crash_matrix merges" ;;
        *) tests="-p millpond --test it" filter="crash_matrix scenarios" ;;
    esac
    plant "$bug"
    # shellcheck disable=SC2086 # Words.
    cargo test -q $tests --no-run || exit 2
    began=$(date +%s%N)
    # shellcheck disable=SC2086 # Words.
    RUST_BACKTRACE=0 timeout 300 cargo test -q $tests -- $filter > target/planted/out.txt 2>&1
    passed=$?
    took=$((($(date +%s%N) - began) / 1000000))
    # From the list at the end, or, where another test hung and none came, from the lines in between.
    tests=$(sed -n -e 's/^    \([a-z_]*\(::[a-z_]*\)*\)$/\1/p' -e 's/^\([a-z_:]*\) --- FAILED$/\1/p' target/planted/out.txt | sort -u | tr '\n' ' ')
    if [ "$passed" -ne 0 ] && [ -n "$tests" ]; then
        found=$((found + 1))
        printf '%-28s found in %5d ms by %s\n' "$bug" "$took" "$tests"
        grep -m 1 '^crash at\|^internal error\|^opened\|REDO-\|STORE-\|deadlock\|livelock\|is read by two\|a frame is lost\|a reader passed' target/planted/out.txt | cut -c 1-150 | sed 's/^/    first: /'
    else
        missed=$((missed + 1))
        printf '%-28s NOT FOUND after %d ms\n' "$bug" "$took"
    fi
done
printf '%d passed, %d failed\n' "$found" "$missed"
[ "$missed" -eq 0 ]
