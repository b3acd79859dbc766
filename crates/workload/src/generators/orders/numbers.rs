//! The numbers of a table's orders.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The numbers that the clients of a table give to new orders.
#[derive(Debug)]
pub struct Numbers(Mutex<Given>);

#[derive(Debug)]
struct Given {
    next: u64,
    /// Numbers of inserts that are neither committed nor given up.
    in_flight: BTreeSet<u64>,
}

impl Numbers {
    /// The numbers above `last`.
    pub fn above(last: u64) -> Numbers {
        Numbers(Mutex::new(Given { next: last + 1, in_flight: BTreeSet::new() }))
    }

    /// Takes the next number. It is in flight until [`Numbers::settle`].
    pub(super) fn take(&self) -> u64 {
        let mut given = self.0.lock();
        let number = given.next;
        given.next += 1;
        given.in_flight.insert(number);
        number
    }

    /// Notes that the insert of the order `number` is committed, or will never be.
    pub(super) fn settle(&self, number: u64) {
        self.0.lock().in_flight.remove(&number);
    }

    /// The lowest number that an insert may still commit.
    pub(super) fn lowest_in_flight(&self) -> u64 {
        let given = self.0.lock();
        given.in_flight.first().copied().unwrap_or(given.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_flight_hold_the_lowest_until_they_settle() {
        let numbers = Numbers::above(9);
        assert_eq!(numbers.lowest_in_flight(), 10);
        assert_eq!((numbers.take(), numbers.take(), numbers.take()), (10, 11, 12));
        numbers.settle(11);
        assert_eq!(numbers.lowest_in_flight(), 10);
        numbers.settle(10);
        assert_eq!(numbers.lowest_in_flight(), 12);
        numbers.settle(12);
        assert_eq!(numbers.lowest_in_flight(), 13);
    }
}
