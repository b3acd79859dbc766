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
    let [two, one, late] = [2, 1, 1].map(|count| ticket(free.take_or_wait(count)));
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
    let last = ticket(free.take_or_wait(1));
    free.stop();
    assert_eq!((ended(&last), free.wanted()), (vec![], 0));
    assert!(matches!(free.take_or_wait(1), Taken::Stopped));
}
