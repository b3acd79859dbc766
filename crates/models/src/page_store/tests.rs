//! The model's result, and the bugs that it finds.

use super::*;
use crate::check::{assert_holds, counterexample, violated};

fn planted(bug: Bug) -> PageStore {
    PageStore { log_limit: 6, planted: Some(bug) }
}

/// The loss by a crash in the state that the checker stops at.
fn loss(bug: Bug) -> Option<Loss> {
    counterexample(planted(bug), RECOVERS).last_state().find_loss()
}

#[test]
fn every_crash_recovers() {
    // One more record takes a minute and 3 GB: `make crash` has that.
    let log_limit = if std::env::var_os("MILLPOND_FULL").is_some() { 7 } else { 6 };
    assert_holds(PageStore { log_limit, planted: None });
}

#[test]
fn image_is_not_written_over_the_last_one() {
    assert_eq!(loss(Bug::WrittenInPlace), Some(Loss::WrongImage));
    counterexample(planted(Bug::WrittenInPlace), SLOT_HAS_ONE_OWNER);
}

#[test]
fn slot_freed_before_the_map_record_is_durable_is_overwritten() {
    assert_eq!(loss(Bug::SlotFreedEarly), Some(Loss::WrongImage));
}

#[test]
fn sync_does_not_cover_writes_completed_after_its_submission() {
    assert_eq!(loss(Bug::SyncCoversLaterWrites), Some(Loss::WrongImage));
    assert_eq!(loss(Bug::SuperblockCoversLaterWrites), Some(Loss::WrongImage));
}

#[test]
fn checkpoint_waits_for_operations() {
    assert_eq!(loss(Bug::OperationHoldsNothing), Some(Loss::ChangeLost));
}

#[test]
fn checkpoint_waits_for_the_map_page() {
    assert_eq!(loss(Bug::MapPageHoldsNothing), Some(Loss::ChangeLost));
}

#[test]
fn checkpoint_is_decided_before_the_map_page_is_rewritten() {
    assert_eq!(loss(Bug::CheckpointAfterDirectory), Some(Loss::ChangeLost));
}

#[test]
fn log_stays_until_the_superblock_is_durable() {
    assert_eq!(loss(Bug::LogGoneBeforeSync), Some(Loss::LogGone));
}

#[test]
fn superblock_waits_for_the_log() {
    assert_eq!(loss(Bug::SuperblockBeforeLog), Some(Loss::ChangeLost));
}

#[test]
fn image_before_the_log_survives_crashes_but_lends_its_lsn() {
    assert_eq!(violated(planted(Bug::ImageBeforeLog)), [LOG_BEFORE_IMAGE]);
}

#[test]
fn frame_whose_image_is_being_written_stays() {
    counterexample(planted(Bug::EvictedDuringWrite), READS_NEWEST);
}
