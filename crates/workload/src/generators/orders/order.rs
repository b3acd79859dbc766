//! An order: a row of the order queue's table.

use rand::RngExt;

use crate::engine::TableNo;
use crate::generators::row::{C_LEN, fill_with_digits, random_c};
use crate::keys::Random;

/// Bytes of the address.
const ADDRESS_LEN: usize = 40;

/// Number of customers, all equally likely.
const CUSTOMERS: u32 = 100_000;

/// Number of products, all equally likely.
const PRODUCTS: u32 = 10_000;

/// Number of states that an order can have.
const STATES: u32 = 8;

/// Highest amount of a new order, in cents.
const AMOUNT_MAX: u32 = 100_000;

/// One row. With its primary key it takes 200 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The order's number, from 1: the column `created`. A later order has a higher number.
    pub number: u64,
    /// The customer, from 0.
    pub customer: u32,
    /// The product, from 0.
    pub product: u32,
    /// The status, from 0. Each update makes it the next one, and the last one 0 again.
    pub status: u32,
    /// The price of all, in cents. Each update adds a cent.
    pub amount: u32,
    /// Text that each update replaces.
    pub note: [u8; C_LEN],
    /// Text that stays.
    pub address: [u8; ADDRESS_LEN],
}

impl Order {
    /// Bytes of the primary key.
    pub const KEY_LEN: usize = 16;

    /// Bytes of a row, its primary key among them: the number, four numbers of 4 bytes, note and address.
    pub const LEN: usize = Order::KEY_LEN + 8 + 4 * 4 + C_LEN + ADDRESS_LEN;

    /// Makes a new order with this number and random columns.
    pub fn random(number: u64, random: &mut Random) -> Order {
        let mut address = [b' '; ADDRESS_LEN];
        fill_with_digits(&mut address, random);
        Order {
            number,
            customer: random.random_range(0..CUSTOMERS),
            product: random.random_range(0..PRODUCTS),
            status: 0,
            amount: random.random_range(1..=AMOUNT_MAX),
            note: random_c(random),
            address,
        }
    }

    /// The status after `status`.
    pub fn next_status(status: u32) -> u32 {
        status.wrapping_add(1) % STATES
    }
}

/// The primary key of the order `number` of a table. Two orders of a table have different keys.
pub fn key_of(table: TableNo, number: u64) -> [u8; Order::KEY_LEN] {
    // The mixing function is a bijection, so the first half alone tells the orders of a table apart.
    let first = mixed(number ^ mixed(u64::from(table.get())));
    let second = mixed(!first);
    let mut key = [0; Order::KEY_LEN];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): each bit of
/// the number changes half of the bits of the result.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::keys::random;

    #[test]
    fn keys_of_orders_are_unique_and_spread_over_all_values() {
        let keys: Vec<_> =
            TableNo::first(2).flat_map(|table| (1..=10_000).map(move |number| key_of(table, number))).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 20_000);
        // 20,000 keys, 1250 for each value of four bits, give or take five standard deviations of 34.
        for byte in 0..Order::KEY_LEN {
            let mut sixteenths = [0_u32; 16];
            keys.iter().for_each(|key| sixteenths[usize::from(key[byte] >> 4)] += 1);
            assert!(sixteenths.iter().all(|count| (1_080..1_420).contains(count)), "byte {byte}: {sixteenths:?}");
        }
    }

    #[test]
    fn orders_repeat_with_the_seed_and_states_go_round() {
        let drawn = |seed| Order::random(9, &mut random(seed, 0));
        assert_eq!(drawn(4), drawn(4));
        assert_ne!(drawn(4), drawn(5));
        let mut status = drawn(4).status;
        for _ in 0..STATES {
            assert!(status < STATES);
            status = Order::next_status(status);
        }
        assert_eq!(status, 0);
    }
}
