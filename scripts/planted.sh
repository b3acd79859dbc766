#!/bin/sh
# Builds the engine with all bugs planted, wakes one at a time, and runs its crash tests, or the model of the code that it
# is in: each bug must make one fail.
# Prints which test found it first, and how long after the tests began. All bugs begin with the same tests without any: they
# must pass.
set -u
cd "$(dirname "$0")/.." || exit 2
bugs=${*:-"absent_keys_held_early ack_before_sync asked_while_synced backup_ends_at_its_checkpoint build_forgets_changes build_takes_any_duplicate catch_up_without_expect checkpoint_skips_dirty chunks_kept closed_for_ever copies_not_synced copies_overwritten_early copy_rings_no_bell count_kept_on_redirty cut_before_map_is_synced cut_looks_at_the_oldest_only cut_out_of_an_earlier_life cut_out_record_is_damage cut_under_an_image deadlocks_not_found directory_claims_all_entries directory_not_synced drop_frees_slots_early dropped_image_freed ended_snapshot_read_on entries_that_stay_keep_their_stamp epoch_not_synced failed_read_tells_no_waiter first_step_only first_updater_loses frames_lost_on_cancel free_not_replayed freed_id_given_out_early freed_image_named freed_page_written horizon_behind_the_list image_ahead_not_looked_at image_taken_for_durable index_taken_for_orphan init_reads_old_image intents_not_waited_for latch_parked_forgotten latch_readers_pass later_parts_forgotten leaf_forgotten_after_split lease_not_looked_at lease_not_waited_for load_id_never_ends live_snapshot_passed load_named_before_durable load_not_given_back load_takes_any_duplicate load_txn_not_logged log_not_looked_at log_not_written_again losers_forgotten map_after_submission map_before_data map_places_short moved_not_counted moved_unchecked needed_versions_left_out newcomer_passes_the_line next_leader_forgotten no_reserve no_writer_pays notes_not_given_back nothing_kept_for_the_order notified_from_now_on old_entry_kept ordered_after_the_mutex overwritten_given_away page_before_log page_numbers_wrap panic_told_too_late pinned_image_overwritten pinned_slot_given_out publish_before_copy purge_removes_what_is_there put_back_not_synced quota_not_counted ring_added_beside_sync route_of_split_page row_in_flight_not_locked row_not_expected row_read_unlocked rows_not_first scan_outlives_its_transaction shown_before_the_commit slot_freed_early stale_read_installs_page stop_drops_the_tail superblock_before_log sync_not_bounded tag_not_compared ticket_not_looked_for two_read_one_page txn_ids_forgotten undo_page_left_early undo_pages_not_retained undone_mark_not_purged unique_not_demanded unlogged_change_stays unredone_not_counted versions_before_a_deletion_all_go waiters_forgotten_on_failure window_not_counted written_taken_for_flushed"}
unset MILLPOND_PLANTED
export RUSTFLAGS="--cfg planted" CARGO_TARGET_DIR=target/planted
out=target/planted/out.txt
cargo test -q -p millpond --lib --test it --no-run && cargo test -q -p millpond-models --tests --no-run || exit 2

if [ $# -eq 0 ]; then
    if ! { cargo test -q -p millpond --lib --test it && cargo test -q -p millpond-models --tests; } > $out 2>&1; then
        echo "without a bug a test fails, so one that fails with a bug shows nothing: see $out"
        exit 2
    fi
    echo "without a bug: all tests passed"
fi

found=0
missed=0
running=
trap 'kill $running 2> /dev/null; exit 2' INT TERM
for bug in $bugs; do
    filter=
    case $bug in
        cut_looks_at_the_oldest_only | ended_snapshot_read_on | horizon_behind_the_list) tests="-p millpond-models --test snapshots" ;;
        latch_*) tests="-p millpond-models --test latch" ;;
        frames_lost_on_cancel | ticket_not_looked_for) tests="-p millpond-models --test free_frames" ;;
        failed_read_tells_no_waiter | stale_read_installs_page | two_read_one_page) tests="-p millpond-models --test page_reads" ;;
        copy_rings_no_bell | next_leader_forgotten | notified_from_now_on | ordered_after_the_mutex | panic_told_too_late | sync_not_bounded | waiters_forgotten_on_failure) tests="-p millpond-models --test commits" ;;
        catch_up_without_expect) tests="-p millpond --lib" filter="index_build" ;;
        overwritten_given_away) tests="-p millpond --lib" filter="in_place" ;;
        dropped_image_freed) tests="-p millpond --lib" filter="store" ;;
        build_* | notes_not_given_back) tests="-p millpond --test it" filter="index_builds" ;;
        asked_while_synced) tests="-p millpond --lib" filter="flush_by" ;;
        quota_not_counted) tests="-p millpond --lib" filter="log_spin" ;;
        window_not_counted) tests="-p millpond --lib" filter="log_threads" ;;
        written_taken_for_flushed) tests="-p millpond --test it" filter="a_crash_while_threads" ;;
        load_*) tests="-p millpond --test it" filter="bulk_load" ;;
        cut_before_map_is_synced) tests="-p millpond --lib" filter="store::cut" ;;
        cut_under_an_image) tests="-p millpond --test it" filter="space_back" ;;
        directory_claims_all_entries) tests="-p millpond --test it" filter="small_trees" ;;
        drop_frees_slots_early) tests="-p millpond --test it" filter="drops" ;;
        nothing_kept_for_the_order) tests="-p millpond --test it" filter="transaction_commit" ;;
        put_back_not_synced) tests="-p millpond --test it" filter="put_back" ;;
        later_parts_forgotten) tests="-p millpond --test it" filter="recoveries" ;;
        backup_* | pinned_*) tests="-p millpond --test it" filter="backup" ;;
        lease_*) tests="-p millpond --lib" filter="lease" ;;
        page_numbers_wrap) tests="-p millpond --lib" filter="store::map" ;;
        stop_drops_the_tail) tests="-p millpond --test it" filter="endings" ;;
        unlogged_change_stays) tests="-p millpond --lib" filter="page_writer" ;;
        log_not_looked_at) tests="-p millpond --lib" filter="page_writer" ;;
        map_places_short) tests="-p millpond --lib" filter="checkpoint" ;;
        image_ahead_not_looked_at) tests="-p millpond --test it" filter="in_place" ;;
        image_taken_for_durable | log_not_written_again) tests="-p millpond --test it" filter="killed" ;;
        moved_*) tests="-p millpond --test it" filter="zones" ;;
        no_writer_pays) tests="-p millpond --test it" filter="pace" ;;
        tag_not_compared) tests="-p millpond --test it" filter="lost_writes" ;;
        route_of_split_page) tests="-p millpond --test it" filter="races" ;;
        purge_removes_what_is_there | txn_ids_forgotten | undo_page_left_early) tests="-p millpond --test it" filter="rows" ;;
        cut_out_of_an_earlier_life) tests="-p millpond --lib" filter="purge_queue" ;;
        cut_out_record_is_damage) tests="-p millpond --lib" filter="long_values" ;;
        first_step_only | needed_versions_left_out | versions_before_a_deletion_all_go) tests="-p millpond --test it" filter="version_chains" ;;
        live_snapshot_passed | undo_pages_not_retained) tests="-p millpond --test it" filter="snapshots" ;;
        chunks_kept) tests="-p millpond --test it" filter="long_values" ;;
        row_read_unlocked | rows_not_first) tests="-p millpond --test it" filter="large_table_batches" ;;
        entries_that_stay_keep_their_stamp | first_updater_loses) tests="-p millpond --test it" filter="isolation" ;;
        intents_not_waited_for | newcomer_passes_the_line) tests="-p millpond --test it" filter="transaction_ddl" ;;
        deadlocks_not_found | scan_outlives_its_transaction) tests="-p millpond --test it" filter="transactions::" ;;
        leaf_forgotten_after_split) tests="-p millpond --test it" filter="wide_batches" ;;
        absent_keys_held_early | losers_forgotten | row_in_flight_not_locked | shown_before_the_commit | undone_mark_not_purged) tests="-p millpond --test it" filter="large_batches" ;;
        index_taken_for_orphan | old_entry_kept | row_not_expected | unique_not_demanded) tests="-p millpond --test it" filter="tables" ;;
        closed_for_ever) tests="-p millpond --test it" filter="endings" ;;
        free_not_replayed | freed_*) tests="-p millpond --test it" filter="crash_matrix merges" ;;
        *) tests="-p millpond --test it" filter="crash_matrix scenarios" ;;
    esac
    : > $out
    began=$(date +%s%N)
    # In a process group of their own, which ends when the first test has failed.
    # shellcheck disable=SC2086 # Words.
    MILLPOND_PLANTED=$bug RUST_BACKTRACE=0 timeout 900 cargo test $tests -- --nocapture --test-threads=2 $filter > $out 2>&1 &
    running=$!
    while kill -0 $running 2> /dev/null && ! grep -q '^test .* FAILED$' $out; do sleep 0.2; done
    took=$((($(date +%s%N) - began) / 1000000))
    kill $running 2> /dev/null
    wait $running 2> /dev/null
    status=$?
    by=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' $out | head -n 1 | sed 's/ - should panic$//')
    # A run of some bugs has not shown that all tests pass without them.
    if [ -n "$by" ] && [ $# -gt 0 ] && ! cargo test -q $tests -- --exact "$by" > $out.asleep 2>&1; then
        missed=$((missed + 1))
        printf '%-28s NOT FOUND: %s fails without it, too\n' "$bug" "$by"
    elif [ -n "$by" ]; then
        found=$((found + 1))
        printf '%-28s found in %6d ms by %s\n' "$bug" "$took" "$by"
        grep -m 1 '^crash at\|^internal error\|^opened\|REDO-\|STORE-\|deadlock\|livelock\|is read by two\|a frame is lost\|a reader passed' $out | cut -c 1-150 | sed 's/^/    first: /'
    else
        missed=$((missed + 1))
        # 0: all tests passed; 124: they took too long; others: they ended before a test could tell.
        printf '%-28s NOT FOUND after %d ms, status %d\n' "$bug" "$took" "$status"
    fi
done
printf '%d found, %d not found\n' "$found" "$missed"
[ "$missed" -eq 0 ]
