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

/// Most numbers by which the base of ranks is behind the next number.
const BEHIND_MAX: u64 = 1_000;

impl Numbers {
    /// The number from which ranks count back. Orders below it are mostly there: it is below the numbers in flight. But
    /// a client that stands still does not hold it.
    pub(super) fn base_of_ranks(&self) -> u64 {
        let given = self.0.lock();
        let lowest = given.in_flight.first().copied().unwrap_or(given.next);
        lowest.max(given.next.saturating_sub(BEHIND_MAX))
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
        let (slow, base) = (numbers.take(), numbers.base_of_ranks());
        for _ in 0..2 * BEHIND_MAX {
            numbers.settle(numbers.take());
        }
        assert_eq!((numbers.lowest_in_flight(), base), (slow, slow));
        assert_eq!(numbers.base_of_ranks(), slow + 1 + BEHIND_MAX);
    }
}
