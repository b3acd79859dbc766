//! Unit tests of the link buffer, apart from its file because a model includes that file unchanged.

use super::link_buffer::LinkBuffer;
use crate::base::ids::Lsn;

#[test]
fn the_tail_stops_at_the_first_gap() {
    let links = LinkBuffer::new(1024, Lsn(1000));
    links.add(Lsn(1040), Lsn(1100));
    assert_eq!(links.follow(), Lsn(1000));
    links.add(Lsn(1000), Lsn(1040));
    assert_eq!((links.tail(), links.follow()), (Lsn(1000), Lsn(1100)));
}

#[test]
fn places_are_used_again_when_the_tail_has_passed() {
    let links = LinkBuffer::new(64, Lsn(0));
    assert!(links.has_room(Lsn(64)) && !links.has_room(Lsn(80)));
    for start in (0..10_000).step_by(20) {
        assert!(links.has_room(Lsn(start)));
        links.add(Lsn(start), Lsn(start + 20));
        assert_eq!(links.follow(), Lsn(start + 20));
    }
}
