//! The number of statements of each kind in a transaction: sysbench's options.

use crate::Error;

use super::Workload;

/// The most statements of one kind in a transaction, and the most values or ranges in one statement; a higher number is
/// a typing error.
const COUNT_MAX: u32 = 10_000;

/// Most ids in one range.
const RANGE_SIZE_MAX: u32 = 10_000_000;

/// Most rows in one batch.
const BATCH_SIZE_MAX: u32 = 1_000_000;

/// sysbench's options of its OLTP workloads, by its names and with its defaults, and one for batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Rows selected by id; `oltp_point_select` always selects one.
    pub point_selects: u32,
    /// Ranges of ids whose rows are selected.
    pub simple_ranges: u32,
    /// Ranges of ids whose `k` are summed up.
    pub sum_ranges: u32,
    /// Ranges of ids whose rows are sorted by `c`.
    pub order_ranges: u32,
    /// Ranges of ids whose distinct `c` are sorted.
    pub distinct_ranges: u32,
    /// Ids in each range.
    pub range_size: u32,
    /// Updates of `k`, which is indexed.
    pub index_updates: u32,
    /// Updates of `c`, which is not indexed.
    pub non_index_updates: u32,
    /// Rows deleted and inserted again.
    pub delete_inserts: u32,
    /// Whether transactions have ranges at all.
    pub range_selects: bool,
    /// Whether `oltp_insert` takes the next id above all others; otherwise it draws spread ids.
    pub auto_inc: bool,
    /// Rows in a batch of `random_batches`.
    pub batch_size: u32,
    /// Whether transactions have no begin and commit.
    pub skip_trx: bool,
    /// Values of `k` in a statement of `select_random_points`.
    pub random_points: u32,
    /// Ranges of `k` in a statement of `select_random_ranges`.
    pub number_of_ranges: u32,
    /// Length of such a range.
    pub delta: u32,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            point_selects: 10,
            simple_ranges: 1,
            sum_ranges: 1,
            order_ranges: 1,
            distinct_ranges: 1,
            range_size: 100,
            index_updates: 1,
            non_index_updates: 1,
            delete_inserts: 1,
            range_selects: true,
            auto_inc: true,
            batch_size: 1000,
            skip_trx: false,
            random_points: 10,
            number_of_ranges: 10,
            delta: 5,
        }
    }
}

impl Mix {
    /// Checks every number.
    ///
    /// # Errors
    /// [`Error::Invalid`]: one is out of its range, or a transaction of `workload` would have no statement.
    pub fn check(&self, workload: Workload) -> Result<(), Error> {
        for (option, value, least, most) in [
            ("point-selects", self.point_selects, 0, COUNT_MAX),
            ("simple-ranges", self.simple_ranges, 0, COUNT_MAX),
            ("sum-ranges", self.sum_ranges, 0, COUNT_MAX),
            ("order-ranges", self.order_ranges, 0, COUNT_MAX),
            ("distinct-ranges", self.distinct_ranges, 0, COUNT_MAX),
            ("range-size", self.range_size, 1, RANGE_SIZE_MAX),
            ("index-updates", self.index_updates, 0, COUNT_MAX),
            ("non-index-updates", self.non_index_updates, 0, COUNT_MAX),
            ("delete-inserts", self.delete_inserts, 0, COUNT_MAX),
            ("batch-size", self.batch_size, 1, BATCH_SIZE_MAX),
            ("random-points", self.random_points, 1, COUNT_MAX),
            ("number-of-ranges", self.number_of_ranges, 1, COUNT_MAX),
        ] {
            if !(least..=most).contains(&value) {
                return Err(Error::Invalid(format!("--{option} must be {least} to {most}, not {value}")));
            }
        }
        let is_mixed =
            workload.is_transactional() || matches!(workload, Workload::UpdateIndex | Workload::UpdateNonIndex);
        let (reads, writes) = self.of(workload).statements();
        if is_mixed && reads + writes == 0 {
            let option = match workload {
                Workload::ReadOnly | Workload::ReadWrite => "point-selects",
                Workload::UpdateNonIndex => "non-index-updates",
                _ => "index-updates",
            };
            return Err(Error::Invalid(format!(
                "with these options a transaction of {workload} has no statement, --{option} is 0; \
                 ask for one at least, as --{option}=1"
            )));
        }
        Ok(())
    }

    /// The counts that apply to `workload`; 0 for all others.
    pub(super) fn of(self, workload: Workload) -> Mix {
        let none = Mix {
            point_selects: 0,
            simple_ranges: 0,
            sum_ranges: 0,
            order_ranges: 0,
            distinct_ranges: 0,
            index_updates: 0,
            non_index_updates: 0,
            delete_inserts: 0,
            ..self
        };
        let without_writes = Mix { index_updates: 0, non_index_updates: 0, delete_inserts: 0, ..self };
        let mix = match workload {
            Workload::PointSelect => Mix { point_selects: 1, ..none },
            Workload::ReadOnly => without_writes,
            Workload::ReadWrite => self,
            Workload::WriteOnly => Mix {
                index_updates: self.index_updates,
                non_index_updates: self.non_index_updates,
                delete_inserts: self.delete_inserts,
                ..none
            },
            Workload::UpdateIndex => Mix { index_updates: self.index_updates, ..none },
            Workload::UpdateNonIndex => Mix { non_index_updates: self.non_index_updates, ..none },
            Workload::Insert
            | Workload::Delete
            | Workload::RandomPoints
            | Workload::RandomRanges
            | Workload::BulkInsert
            | Workload::RandomBatches => none,
        };
        if mix.range_selects {
            return mix;
        }
        Mix { simple_ranges: 0, sum_ranges: 0, order_ranges: 0, distinct_ranges: 0, ..mix }
    }

    /// Statements that read, and that write; a delete with its insert is two.
    pub(super) fn statements(self) -> (u64, u64) {
        let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let reads = [self.point_selects, self.simple_ranges, self.sum_ranges, self.order_ranges, self.distinct_ranges];
        let writes = [self.index_updates, self.non_index_updates, self.delete_inserts, self.delete_inserts];
        (sum(&reads), sum(&writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_make_sysbenchs_transactions() {
        let statements = |workload| Mix::default().of(workload).statements();
        assert_eq!(statements(Workload::PointSelect), (1, 0));
        assert_eq!(statements(Workload::ReadOnly), (14, 0));
        assert_eq!(statements(Workload::ReadWrite), (14, 4));
        assert_eq!(statements(Workload::WriteOnly), (0, 4));
        assert_eq!(statements(Workload::UpdateIndex), (0, 1));
        assert_eq!(statements(Workload::UpdateNonIndex), (0, 1));
    }

    #[test]
    fn ranges_can_be_left_out_as_a_whole() {
        let mix = Mix { range_selects: false, ..Mix::default() };
        assert_eq!(mix.of(Workload::ReadOnly).statements(), (10, 0));
        assert_eq!(mix.of(Workload::ReadWrite).statements(), (10, 4));
    }

    #[test]
    fn point_select_selects_one_row_whatever_the_option_says() {
        let mix = Mix { point_selects: 0, ..Mix::default() };
        assert_eq!(mix.of(Workload::PointSelect).statements(), (1, 0));
        assert!(mix.check(Workload::PointSelect).is_ok());
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_option_value_and_range() {
        let default = Mix::default();
        for (mix, parts) in [
            (Mix { range_size: 0, ..default }, ["--range-size", "not 0", "1 to "]),
            (Mix { random_points: 0, ..default }, ["--random-points", "not 0", "1 to 10000"]),
            (Mix { number_of_ranges: 10_001, ..default }, ["--number-of-ranges", "not 10001", "1 to 10000"]),
            (Mix { point_selects: 10_001, ..default }, ["--point-selects", "not 10001", "0 to 10000"]),
        ] {
            let error = mix.check(Workload::ReadWrite).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn transactions_without_a_statement_are_refused_with_a_way_out() {
        let default = Mix::default();
        for (workload, mix, option) in [
            (Workload::UpdateIndex, Mix { index_updates: 0, ..default }, "--index-updates=1"),
            (Workload::UpdateNonIndex, Mix { non_index_updates: 0, ..default }, "--non-index-updates=1"),
            (Workload::ReadOnly, Mix { point_selects: 0, range_selects: false, ..default }, "--point-selects=1"),
        ] {
            let error = mix.check(workload).unwrap_err().to_string();
            assert!(error.contains(option) && error.contains(workload.name()), "{error}");
            assert!(mix.check(Workload::Insert).is_ok());
        }
    }
}
