//! A row of the insert benchmark's table.

use rand::RngExt;

use crate::keys::Random;

/// Milliseconds from 1970 to 2020: the date of the first purchase.
const FIRST_DATE_MS: u64 = 1_577_836_800_000;

/// Number of values of each column, all equally likely: iibench's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domains;

impl Domains {
    /// Cash registers.
    pub const CASH_REGISTERS: u32 = 1_000;
    /// Products.
    pub const PRODUCTS: u32 = 10_000;
    /// Customers.
    pub const CUSTOMERS: u32 = 100_000;
    /// Prices.
    pub const PRICES: u32 = 500;
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purchase {
    /// The primary key, from 1.
    pub id: u64,
    /// Milliseconds since 1970. Each purchase is 1 ms after the one before, so that a seed always gives the same rows.
    pub date_ms: u64,
    /// The cash register, from 0.
    pub cash_register: u32,
    /// The customer, from 0.
    pub customer: u32,
    /// The product, from 0.
    pub product: u32,
    /// The price, from 0.
    pub price: u32,
    /// Column `data`: the first half is the same in all rows, the second is random letters.
    pub data: Vec<u8>,
}

impl Purchase {
    /// Overwrites it with the purchase `id`, of random columns and `data_len` bytes of data; reuses its memory.
    pub fn redraw(&mut self, id: u64, data_len: usize, random: &mut Random) {
        self.id = id;
        self.date_ms = FIRST_DATE_MS + id;
        self.cash_register = random.random_range(0..Domains::CASH_REGISTERS);
        self.customer = random.random_range(0..Domains::CUSTOMERS);
        self.product = random.random_range(0..Domains::PRODUCTS);
        self.price = random.random_range(0..Domains::PRICES);
        self.data.clear();
        self.data.resize(data_len.div_ceil(2), b'a');
        self.data.extend((self.data.len()..data_len).map(|_| random.random_range(b'a'..=b'z')));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::random;

    #[test]
    fn columns_have_all_of_their_values_and_repeat_with_the_seed() {
        let drawn = |seed| {
            let mut random = random(seed, 0);
            let draw = |id| {
                let mut purchase = Purchase::default();
                purchase.redraw(id, 11, &mut random);
                purchase
            };
            (1..=20_000).map(draw).collect::<Vec<_>>()
        };
        let rows = drawn(4);
        assert_eq!(rows, drawn(4));
        assert_ne!(rows, drawn(5));
        assert!(rows.windows(2).all(|pair| pair[0].id < pair[1].id && pair[0].date_ms < pair[1].date_ms));
        for (column, values) in [
            ((|row| row.cash_register) as fn(&Purchase) -> u32, Domains::CASH_REGISTERS),
            (|row| row.customer, Domains::CUSTOMERS),
            (|row| row.product, Domains::PRODUCTS),
            (|row| row.price, Domains::PRICES),
        ] {
            // 20,000 draws, 5000 a quarter, give or take five standard deviations of 61.
            let mut quarters = [0_u32; 4];
            rows.iter().for_each(|row| quarters[(column(row) * 4 / values) as usize] += 1);
            assert!(quarters.iter().all(|count| (4_690..5_310).contains(count)), "{quarters:?}");
        }
        assert!(rows.iter().all(|row| row.data.len() == 11 && row.data.starts_with(b"aaaaaa")));
        assert_ne!(rows[0].data, rows[1].data);
    }
}
