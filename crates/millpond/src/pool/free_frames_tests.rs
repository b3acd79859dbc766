use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::free_frames::{CANCELLED, FreeFrames, GRANTED, Taken, Ticket, WAITING};
use crate::base::ids::FrameId;
use crate::base::waits::{WaitClass, Waits};

fn ticket(taken: Taken) -> Arc<Ticket> {
    match taken {
        Taken::Wait(ticket) => ticket,
        Taken::Frames(frames) => panic!("{frames:?} while others wait"),
        Taken::Stopped => panic!("stopped"),
    }
}

fn states(tickets: &[&Arc<Ticket>]) -> Vec<u8> {
    tickets.iter().map(|ticket| ticket.state.load(Ordering::Relaxed)).collect()
}

#[test]
fn a_ticket_that_is_killed_lets_the_next_in_and_loses_no_frame() {
    let waits = Waits::new(Duration::from_secs(1));
    let ended = |ticket: &Ticket| ticket.handoff.take_wait(WaitClass::FreeFrame, &waits);
    let free = FreeFrames::new();
    let [two, one, late] = [2, 1, 1].map(|count| ticket(free.take_or_wait(count, None)));
    free.give(FrameId(7));
    // The oldest ticket wants two frames: neither a later ticket nor a newcomer passes it.
    assert_eq!((states(&[&two, &one, &late]), free.take(1), free.wanted()), (vec![WAITING; 3], None, 4));
    free.cancel(&two);
    assert_eq!(states(&[&two, &one, &late]), [CANCELLED, GRANTED, WAITING]);
    assert_eq!((ended(&two), ended(&one), free.wanted()), (vec![], vec![FrameId(7)], 1));
    // Cancelled too late: the frame is the ticket's.
    free.give(FrameId(8));
    free.cancel(&late);
    assert_eq!((states(&[&late]), ended(&late), free.len()), (vec![GRANTED], vec![FrameId(8)], 0));
    free.give(FrameId(8));
    assert_eq!(free.take(1), Some(vec![FrameId(8)]));
    // No frame is freed any more: waiters are told, and newcomers are too.
    let last = ticket(free.take_or_wait(1, None));
    free.stop();
    assert_eq!((ended(&last), free.wanted()), (vec![], 0));
    assert!(matches!(free.take_or_wait(1, None), Taken::Stopped));
}

/// FREE-1: batches exchange their places, and a thread between them keeps its own.
#[test]
fn the_oldest_of_the_batches_in_the_line_is_first() {
    let waits = Waits::new(Duration::from_secs(1));
    let ended = |ticket: &Ticket| ticket.handoff.take_wait(WaitClass::FreeFrame, &waits);
    let free = FreeFrames::new();
    let line = [(2, Some(7)), (1, None), (1, Some(9)), (1, Some(5)), (1, Some(8)), (1, None)];
    let [seven, single, nine, five, eight, last] = line.map(|(count, batch)| ticket(free.take_or_wait(count, batch)));
    // The order by now: 5, single, 7, 8, 9, last.
    (0..7).for_each(|frame| free.give(FrameId(frame)));
    assert_eq!((ended(&five), ended(&single)), (vec![FrameId(0)], vec![FrameId(1)]));
    assert_eq!((ended(&seven), ended(&eight)), (vec![FrameId(2), FrameId(3)], vec![FrameId(4)]));
    assert_eq!((ended(&nine), ended(&last)), (vec![FrameId(5)], vec![FrameId(6)]));
    assert_eq!((free.wanted(), free.len()), (0, 0));
    // A pool that is made smaller ends the waits of batches that want too much, and no others.
    let line = [(3, Some(1)), (3, None), (2, Some(2))];
    let [large, single, small] = line.map(|(count, batch)| ticket(free.take_or_wait(count, batch)));
    free.cancel_batches(2);
    assert_eq!((states(&[&large, &single, &small]), ended(&large)), (vec![CANCELLED, WAITING, WAITING], vec![]));
}
