//! The packets of `bulk_insert`: rows wait until the text of their `INSERT` would be longer than sysbench's.

use crate::engine::{IdRange, TableNo};

/// sysbench's longest text of an `INSERT` of many rows, in bytes.
const PACKET_LEN: usize = 512 * 1024;

/// The name of the table that thread `table` of `bulk_insert` inserts into. sysbench has `sbtestN` here, too, with
/// other columns; this one can stand beside it.
pub fn bulk_name(table: TableNo) -> String {
    format!("{table}.bulk")
}

/// One thread's rows: the packet under construction, and the next id.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    table: TableNo,
    /// The first row in the packet.
    first: u64,
    /// The id of the row to add next.
    next: u64,
    /// Bytes of the statement so far.
    text_len: usize,
}

impl Packet {
    /// An empty packet for `table`, whose largest id is `last_id`.
    pub(super) fn new(table: TableNo, last_id: u64) -> Packet {
        Packet { table, first: last_id + 1, next: last_id + 1, text_len: text_len_before_rows(table) }
    }

    /// Adds a row. If the packet has no room for it, returns the packet's rows, to be inserted, and begins a new
    /// packet.
    pub(super) fn add(&mut self) -> Option<IdRange> {
        // `(id,k)`, where both are the same number, and a byte for the comma or the end.
        let row_len = 2 * digits(self.next) + 3;
        let is_full = self.text_len + row_len + 2 > PACKET_LEN;
        let full = if is_full { self.take() } else { None };
        self.text_len += row_len + usize::from(self.first < self.next);
        self.next += 1;
        full
    }

    /// Takes the rows of the packet.
    pub(super) fn take(&mut self) -> Option<IdRange> {
        let ids = (self.first < self.next).then(|| IdRange { first: self.first, last: self.next - 1 });
        self.first = self.next;
        self.text_len = text_len_before_rows(self.table);
        ids
    }
}

/// Bytes of `INSERT INTO sbtestN VALUES`.
fn text_len_before_rows(table: TableNo) -> usize {
    "INSERT INTO sbtest VALUES".len() + digits(u64::from(table.get()))
}

/// Decimal digits of a number above 0.
fn digits(number: u64) -> usize {
    number.max(1).ilog10() as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills packets until `count` have been full.
    fn full_packets(packet: &mut Packet, count: usize) -> Vec<IdRange> {
        std::iter::repeat_with(|| packet.add()).flatten().take(count).collect()
    }

    #[test]
    fn packets_follow_each_other_and_none_is_longer_than_sysbenchs() {
        let table = TableNo::from_index(0);
        let packets = full_packets(&mut Packet::new(table, 0), 5);
        assert_eq!(packets[0].first, 1);
        for (packet, next) in packets.iter().zip(&packets[1..]) {
            assert_eq!(packet.last + 1, next.first);
            let rows: Vec<String> = (packet.first..=packet.last).map(|id| format!("({id},{id})")).collect();
            let text = format!("INSERT INTO {table} VALUES{}", rows.join(","));
            assert!(text.len() < PACKET_LEN, "{}", text.len());
            assert!(text.len() + format!(",({0},{0})", next.first).len() + 1 > PACKET_LEN, "{}", text.len());
        }
    }

    #[test]
    fn rest_of_a_packet_is_taken_once() {
        let mut packet = Packet::new(TableNo::from_index(4), 100);
        assert_eq!(packet.take(), None);
        for _ in 0..3 {
            assert_eq!(packet.add(), None);
        }
        assert_eq!(packet.take(), Some(IdRange { first: 101, last: 103 }));
        assert_eq!(packet.take(), None);
        packet.add();
        assert_eq!(packet.take(), Some(IdRange { first: 104, last: 104 }));
    }
}
