//! The oracle of `verify isolation`: what transactions saw of one another, from what they returned alone.
//!
//! All versions of a list are known, each with its commit. At repeatable read every read is replayed at its snapshot;
//! at read committed every statement must be of one moment that is not before it began. Then the dependencies are
//! searched for circles, as Elle does (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations", PVLDB 14(3), 2020): a version follows another (ww), a read saw a version (wr), a read missed the next
//! version (rw). Circles without rw are forbidden at each level; those with one rw where the first updater wins.
//!
//! Transactions of different rounds are never at work at the same time, so one round is looked at a time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use millpond::CommitTs;

use super::lists::{Ended, Event, LISTS, List, Refused, writer_of};

/// What a level allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// All reads of a transaction are of one moment.
    pub(super) one_snapshot: bool,
    /// The first updater of a row wins.
    pub(super) first_wins: bool,
}

/// What was seen that the level may allow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) committed: u64,
    pub(super) conflicts: u64,
    pub(super) deadlocks: u64,
    pub(super) reads: u64,
    /// Transactions that read one list twice and saw different ones.
    pub(super) fuzzy_reads: u64,
    /// Versions that were written over without a look at them.
    pub(super) lost_updates: u64,
    /// Pairs of transactions of which each missed what the other wrote.
    pub(super) write_skews: u64,
}

/// A version of a list.
#[derive(Clone)]
struct Version {
    commit: u64,
    /// `None`: from before the round.
    txn: Option<usize>,
    list: List,
}

/// All versions of the lists that transactions of the round may see.
pub(super) struct Oracle {
    rules: Rules,
    /// By list, ascending by commit.
    versions: Vec<Vec<Version>>,
    last_commit: u64,
    pub(super) seen: Seen,
}

/// The kind of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    WriteWrite,
    WriteRead,
    ReadWrite,
}

/// The transactions of a round that are committed, and what each depends on.
struct Round<'t> {
    txns: &'t [Ended],
    /// From a transaction to those that follow from it, each with the list.
    edges: Vec<Vec<(usize, Kind, u32)>>,
}

impl Oracle {
    pub(super) fn new(rules: Rules) -> Oracle {
        let empty = || vec![Version { commit: 0, txn: None, list: List::default() }];
        let versions = (0..LISTS).map(|_| empty()).collect();
        Oracle { rules, versions, last_commit: 0, seen: Seen::default() }
    }

    /// Looks at the transactions of a round. An error is the story of what is wrong.
    pub(super) fn check(&mut self, txns: &[Ended]) -> Result<(), String> {
        self.add_versions(txns)?;
        for (number, txn) in txns.iter().enumerate() {
            match txn.refused {
                Some(Refused::Conflict) => self.seen.conflicts += 1,
                Some(Refused::Deadlock) => self.seen.deadlocks += 1,
                None => self.seen.committed += u64::from(txn.commit.is_some()),
            }
            self.check_reads(number, txn).map_err(|wrong| format!("{wrong}\n{}", story(txn)))?;
        }
        let round = self.round(txns);
        round.check_forward()?;
        if self.rules.first_wins {
            round.check_single()?;
        }
        self.seen.write_skews += round.skews();
        self.forget();
        Ok(())
    }

    /// Adds the versions that the round has committed, and looks at what each was made from.
    fn add_versions(&mut self, txns: &[Ended]) -> Result<(), String> {
        let mut order: Vec<(u64, usize)> = Vec::new();
        for (number, txn) in txns.iter().enumerate() {
            let writes = txn.events.iter().any(|(_, event)| matches!(event, Event::Write { .. }));
            if let Some(commit) = txn.commit.filter(|_| writes) {
                order.push((commit.into(), number));
            }
        }
        order.sort_unstable();
        for (commit, number) in order {
            let txn = &txns[number];
            if commit <= self.last_commit {
                let last = self.last_commit;
                return Err(format!("a commit at {commit} is not after the one at {last}\n{}", story(txn)));
            }
            self.last_commit = commit;
            let mut own: BTreeMap<u32, List> = BTreeMap::new();
            // What was taken back was never committed; others may have written the same lists since.
            let took_back = txn.events.iter().rposition(|(_, event)| matches!(event, Event::TookBack));
            for (_, event) in txn.events.iter().skip(took_back.unwrap_or(0)) {
                let Event::Write { list, base, new, from_a_read } = event else { continue };
                let versions = &self.versions[*list as usize];
                let newest = own.get(list).or_else(|| versions.last().map(|version| &version.list));
                if newest != Some(base) {
                    if !from_a_read || self.rules.first_wins {
                        let newest = newest.map_or_else(String::new, shown);
                        return Err(format!(
                            "list {list} was {newest}, and the transaction wrote over it as if it were {}\n{}",
                            shown(base),
                            story(txn)
                        ));
                    }
                    self.seen.lost_updates += 1;
                }
                own.insert(*list, new.clone());
            }
            for (list, new) in own {
                self.versions[list as usize].push(Version { commit, txn: Some(number), list: new });
            }
        }
        Ok(())
    }

    /// The place of the version of a list that is current at a moment.
    fn at(&self, list: u32, moment: u64) -> usize {
        let versions = &self.versions[list as usize];
        versions.partition_point(|version| version.commit <= moment).saturating_sub(1)
    }

    /// The versions around a moment, for a story.
    fn near(&self, list: u32, moment: u64) -> String {
        let at = self.at(list, moment);
        let versions = self.versions[list as usize].iter().skip(at.saturating_sub(2)).take(5);
        let told = versions.map(|Version { commit, list, .. }| format!("{} elements from {commit} on", list.count));
        told.collect::<Vec<_>>().join(", ")
    }

    /// The place of the version with this content.
    fn find(&self, list: u32, seen: &List) -> Option<usize> {
        self.versions[list as usize].iter().rposition(|version| version.list == *seen)
    }

    fn check_reads(&mut self, number: usize, txn: &Ended) -> Result<(), String> {
        let mut own: HashMap<u32, List> = HashMap::new();
        let mut before: HashMap<u32, List> = HashMap::new();
        let mut is_fuzzy = false;
        for (known, event) in &txn.events {
            match event {
                Event::Write { list, new, .. } => _ = own.insert(*list, new.clone()),
                Event::TookBack => own.clear(),
                Event::Read { list, seen, .. } => {
                    self.seen.reads += 1;
                    if let Some(own) = own.get(list) {
                        if own != seen {
                            let (own, seen) = (shown(own), shown(seen));
                            return Err(format!("it wrote list {list} as {own}, and then read it as {seen}"));
                        }
                        continue;
                    }
                    is_fuzzy |= before.insert(*list, seen.clone()).is_some_and(|before| before != *seen);
                    self.check_read(number, txn, *known, *list, seen)?;
                }
                Event::ReadBucket { bucket, seen } => {
                    self.seen.reads += 1;
                    self.check_bucket(txn, *known, *bucket, seen, &own)?;
                }
            }
        }
        self.seen.fuzzy_reads += u64::from(is_fuzzy);
        if is_fuzzy && self.rules.one_snapshot {
            return Err("it read one list twice, and saw different ones".to_owned());
        }
        Ok(())
    }

    fn check_read(&self, _number: usize, txn: &Ended, known: u64, list: u32, seen: &List) -> Result<(), String> {
        let versions = &self.versions[list as usize];
        let Some(at) = self.find(list, seen) else {
            let of = seen.last.last().map_or(0, |element| writer_of(*element));
            return Err(format!("it read list {list} as {}, which transaction {of} has not committed so", shown(seen)));
        };
        if let Some(moment) = self.moment(txn) {
            let wanted = &versions[self.at(list, moment)];
            if wanted.list != *seen {
                return Err(format!(
                    "at its snapshot of {moment} list {list} is {}, and it read {}",
                    shown(&wanted.list),
                    shown(seen)
                ));
            }
            return Ok(());
        }
        // Current at some time from the statement's begin on.
        match versions.get(at + 1).filter(|next| next.commit <= known) {
            Some(next) => Err(format!(
                "it read list {list} as {}, though the next version was committed at {}, before {known}",
                shown(seen),
                next.commit
            )),
            None => Ok(()),
        }
    }

    /// The moment at which all of the transaction's reads are, if its level says so.
    fn moment(&self, txn: &Ended) -> Option<u64> {
        txn.snapshot.filter(|_| self.rules.one_snapshot).map(u64::from)
    }

    fn check_bucket(
        &self,
        txn: &Ended,
        known: u64,
        bucket: u32,
        seen: &[(u32, List)],
        own: &HashMap<u32, List>,
    ) -> Result<(), String> {
        let seen: BTreeMap<u32, &List> = seen.iter().map(|(list, seen)| (*list, seen)).collect();
        // The lists that are others at a moment, each as it has to be.
        let others_at = |moment: u64| -> Vec<(u32, Option<&List>)> {
            let list_at =
                |list: u32| own.get(&list).unwrap_or(&self.versions[list as usize][self.at(list, moment)].list);
            let wanted = |list| Some(list_at(list)).filter(|list| list.bucket() == bucket);
            let lists = (0..LISTS).map(|list| (list, wanted(list)));
            lists.filter(|(list, wanted)| *wanted != seen.get(list).copied()).collect()
        };
        let told = |moment: u64| match others_at(moment).as_slice() {
            [] => Ok(()),
            others => {
                let other = |(list, wanted): &(u32, Option<&List>)| {
                    let text = |list: Option<&List>| list.map_or_else(|| "not in it".to_owned(), shown);
                    let (is, was, near) = (text(*wanted), text(seen.get(list).copied()), self.near(*list, moment));
                    format!("list {list} is {is} and was {was} ({near})")
                };
                let others: Vec<String> = others.iter().map(other).collect();
                Err(format!("it read bucket {bucket}, but at {moment} {}", others.join(", ")))
            }
        };
        if let Some(moment) = self.moment(txn) {
            return told(moment);
        }
        // The moments that differ: when it began, and each commit since, up to its own.
        let until = txn.commit.map_or(u64::MAX, u64::from);
        let mut moments: Vec<u64> = self.versions.iter().flatten().map(|version| version.commit).collect();
        moments.retain(|commit| (known..=until).contains(commit));
        moments.push(known);
        // If it is of none of them: the one that is most like it.
        let nearest = moments.into_iter().min_by_key(|moment| others_at(*moment).len());
        nearest.map_or(Ok(()), told)
    }

    /// The dependencies of the committed transactions of a round.
    fn round<'t>(&self, txns: &'t [Ended]) -> Round<'t> {
        let mut round = Round { txns, edges: vec![Vec::new(); txns.len()] };
        for (list, versions) in (0..).zip(&self.versions) {
            for pair in versions.windows(2) {
                if let (Some(one), Some(next)) = (pair[0].txn, pair[1].txn) {
                    round.edges[one].push((next, Kind::WriteWrite, list));
                }
            }
        }
        for (reader, txn) in txns.iter().enumerate().filter(|(_, txn)| txn.commit.is_some()) {
            let mut own: HashSet<u32> = HashSet::new();
            for (_, event) in &txn.events {
                let read: &[(u32, List)] = match event {
                    Event::Write { list, .. } => {
                        own.insert(*list);
                        continue;
                    }
                    Event::TookBack => {
                        own.clear();
                        continue;
                    }
                    Event::Read { list, seen, .. } => &[(*list, seen.clone())],
                    Event::ReadBucket { seen, .. } => seen,
                };
                for (list, seen) in read.iter().filter(|(list, _)| !own.contains(list)) {
                    let versions = &self.versions[*list as usize];
                    let Some(at) = self.find(*list, seen) else { continue };
                    if let Some(writer) = versions[at].txn.filter(|writer| *writer != reader) {
                        round.edges[writer].push((reader, Kind::WriteRead, *list));
                    }
                    let next = versions.get(at + 1).and_then(|next| next.txn);
                    if let Some(next) = next.filter(|next| *next != reader) {
                        round.edges[reader].push((next, Kind::ReadWrite, *list));
                    }
                }
            }
        }
        round
    }

    /// Keeps the newest version of each list: no transaction of the round is left.
    fn forget(&mut self) {
        for versions in &mut self.versions {
            versions.drain(..versions.len() - 1);
            versions.iter_mut().for_each(|version| version.txn = None);
        }
    }
}

impl Round<'_> {
    /// The way from one transaction to another without rw, as a circle that an edge to `from` closes; empty: none.
    fn way(&self, from: usize, to: usize) -> Vec<usize> {
        let mut came_from: HashMap<usize, usize> = HashMap::from([(from, from)]);
        let mut next = vec![from];
        while let Some(here) = next.pop() {
            if here == to {
                let mut way = vec![to];
                while let Some(&at) = way.last().filter(|at| **at != from) {
                    way.push(came_from[&at]);
                }
                way.reverse();
                return way;
            }
            for (there, kind, _) in &self.edges[here] {
                if *kind != Kind::ReadWrite && !came_from.contains_key(there) {
                    came_from.insert(*there, here);
                    next.push(*there);
                }
            }
        }
        Vec::new()
    }

    /// Circles without rw (G0, G1c): such a circle has an edge that does not lead to a later commit.
    fn check_forward(&self) -> Result<(), String> {
        for (from, edges) in self.edges.iter().enumerate() {
            for (to, kind, list) in edges.iter().filter(|(_, kind, _)| *kind != Kind::ReadWrite) {
                if self.commit(*to) > self.commit(from) {
                    continue;
                }
                let way = self.way(*to, from);
                if !way.is_empty() {
                    return Err(self.circle_story("a circle of writes and reads", &way, *kind, *list));
                }
            }
        }
        Ok(())
    }

    /// Circles with one rw (G-single): read skew, lost updates.
    fn check_single(&self) -> Result<(), String> {
        for (reader, edges) in self.edges.iter().enumerate() {
            for (writer, kind, list) in edges.iter().filter(|(_, kind, _)| *kind == Kind::ReadWrite) {
                // Each further edge leads to a later commit.
                if self.commit(*writer) >= self.commit(reader) {
                    continue;
                }
                let way = self.way_within(*writer, reader);
                if !way.is_empty() {
                    return Err(self.circle_story("a circle with one missed write", &way, *kind, *list));
                }
            }
        }
        Ok(())
    }

    /// As [`way`](Self::way), over commits before that of the end only.
    fn way_within(&self, from: usize, to: usize) -> Vec<usize> {
        let last = self.commit(to);
        let mut reached: HashSet<usize> = HashSet::from([from]);
        let mut next = vec![from];
        while let Some(here) = next.pop() {
            if here == to {
                return self.way(from, to);
            }
            for (there, kind, _) in &self.edges[here] {
                if *kind != Kind::ReadWrite && self.commit(*there) <= last && reached.insert(*there) {
                    next.push(*there);
                }
            }
        }
        Vec::new()
    }

    fn commit(&self, txn: usize) -> Option<CommitTs> {
        self.txns[txn].commit
    }

    /// Pairs of transactions of which each missed a write of the other.
    fn skews(&self) -> u64 {
        let missed = |from: usize, to: usize| {
            self.edges[from].iter().any(|(there, kind, _)| *there == to && *kind == Kind::ReadWrite)
        };
        let mut skews = 0;
        for (from, edges) in self.edges.iter().enumerate() {
            let later: HashSet<usize> = edges
                .iter()
                .filter(|(to, kind, _)| *to > from && *kind == Kind::ReadWrite)
                .map(|edge| edge.0)
                .collect();
            skews += later.into_iter().filter(|to| missed(*to, from)).count() as u64;
        }
        skews
    }

    fn circle_story(&self, what: &str, way: &[usize], closes: Kind, list: u32) -> String {
        let ids: Vec<String> = way.iter().map(|txn| self.txns[*txn].id.to_string()).collect();
        let (first, last) = (&ids[0], &ids[ids.len() - 1]);
        let closed = match closes {
            Kind::ReadWrite => format!("{last} missed what {first} wrote to list {list}"),
            Kind::WriteRead => format!("{first} read what {last} wrote to list {list}"),
            Kind::WriteWrite => format!("{first} wrote over what {last} wrote to list {list}"),
        };
        let mut text = format!("{what}: {} followed each from the one before, and {closed}", ids.join(", "));
        way.iter().for_each(|txn| _ = write!(text, "\n{}", story(&self.txns[*txn])));
        text
    }
}

/// A list in a story: its last elements, each as its transaction and its number there.
fn shown(list: &List) -> String {
    let elements: Vec<String> = list.last.iter().rev().take(4).rev().map(|element| shown_element(*element)).collect();
    let dots = if list.last.len() > elements.len() { "..., " } else { "" };
    format!("[{dots}{}]", elements.join(", "))
}

fn shown_element(element: u64) -> String {
    format!("{}.{}", writer_of(element), element % 16)
}

/// A transaction's story.
fn story(txn: &Ended) -> String {
    let end = match (txn.commit, txn.refused) {
        (Some(commit), _) => format!("was committed at {commit}"),
        (None, Some(refused)) => format!("was rolled back after a {refused:?}"),
        (None, None) => "was rolled back".to_owned(),
    };
    let snapshot = txn.snapshot.map_or_else(String::new, |at| format!(" with a snapshot of {at}"));
    let mut text = format!("    transaction {}{snapshot}:", txn.id);
    for (_, event) in &txn.events {
        let _ = match event {
            Event::Read { list, seen, by_index } => {
                let by = if *by_index { " by the unique index" } else { "" };
                write!(text, "\n      read list {list}{by}: {}", shown(seen))
            }
            Event::ReadBucket { bucket, seen } => {
                let lists: Vec<String> = seen.iter().map(|(list, seen)| format!("{list} {}", shown(seen))).collect();
                write!(text, "\n      read bucket {bucket}: {}", lists.join(", "))
            }
            Event::Write { list, new, from_a_read, .. } => {
                let from = if *from_a_read { ", from what it had read" } else { "" };
                write!(text, "\n      wrote list {list}{from}: {}", shown(new))
            }
            Event::TookBack => write!(text, "\n      took all its writes back"),
        };
    }
    let _ = write!(text, "\n      and {end}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: Rules = Rules { one_snapshot: true, first_wins: true };
    const LATEST: Rules = Rules { one_snapshot: true, first_wins: false };
    const COMMITTED: Rules = Rules { one_snapshot: false, first_wins: false };

    fn empty() -> List {
        List::default()
    }

    fn read(list: u32, seen: &List) -> (u64, Event) {
        (0, Event::Read { list, seen: seen.clone(), by_index: false })
    }

    fn write(list: u32, base: &List, id: u64, from_a_read: bool) -> (u64, Event) {
        (0, Event::Write { list, base: base.clone(), new: base.with(16 * id), from_a_read })
    }

    fn txn(id: u64, snapshot: u64, commit: u64, events: Vec<(u64, Event)>) -> Ended {
        let at = |at: u64| Some(CommitTs::from(at)).filter(|_| at > 0);
        Ended { id, snapshot: at(snapshot).or(at(u64::from(commit > 0))), commit: at(commit), events, refused: None }
    }

    fn checked(rules: Rules, txns: &[Ended]) -> Result<Seen, String> {
        let mut oracle = Oracle::new(rules);
        oracle.check(txns).map(|()| oracle.seen)
    }

    #[test]
    fn write_skew_and_lost_updates_are_seen_where_they_are_allowed() {
        let skew = [
            txn(1, 5, 10, vec![read(1, &empty()), write(2, &empty(), 1, false)]),
            txn(2, 5, 11, vec![read(2, &empty()), write(1, &empty(), 2, false)]),
        ];
        for rules in [ERROR, LATEST, COMMITTED] {
            assert_eq!(checked(rules, &skew).map(|seen| seen.write_skews), Ok(1));
        }
        let lost = [
            txn(1, 5, 10, vec![write(1, &empty(), 1, false)]),
            txn(2, 5, 11, vec![read(1, &empty()), write(1, &empty(), 2, true)]),
        ];
        assert_eq!(checked(LATEST, &lost).map(|seen| seen.lost_updates), Ok(1));
        let told = checked(ERROR, &lost).expect_err("forbidden");
        assert!(told.contains("list 1 was [1.0]") && told.contains("transaction 2 with a snapshot of 5"), "{told}");
        // Computed in the database, it is forbidden at each level.
        let lost = [lost[0].clone(), txn(2, 5, 11, vec![write(1, &empty(), 2, false)])];
        assert!(checked(COMMITTED, &lost).is_err());
    }

    #[test]
    fn reads_that_are_not_of_their_moment_are_wrong() {
        let one = empty().with(16);
        let writer = txn(1, 5, 10, vec![write(1, &empty(), 1, false)]);
        let reader = |snapshot, seen: &List| [writer.clone(), txn(2, snapshot, 20, vec![read(1, seen)])];
        assert!(checked(ERROR, &reader(9, &empty())).is_ok() && checked(ERROR, &reader(10, &one)).is_ok());
        assert!(checked(ERROR, &reader(10, &empty())).is_err() && checked(ERROR, &reader(9, &one)).is_err());
        let unknown = checked(COMMITTED, &reader(9, &empty().with(48))).expect_err("never committed");
        assert!(unknown.contains("transaction 3 has not committed"), "{unknown}");
        // Read committed: not older than what was known at the begin.
        let mut late = reader(9, &empty());
        assert!(checked(COMMITTED, &late).is_ok());
        late[1].events[0].0 = 10;
        assert!(checked(COMMITTED, &late).is_err());
        // Two reads of one list.
        let twice = [writer, txn(2, 9, 20, vec![read(1, &empty()), read(1, &one)])];
        assert_eq!(checked(COMMITTED, &twice).map(|seen| seen.fuzzy_reads), Ok(1));
        assert!(checked(LATEST, &twice).is_err());
    }

    #[test]
    fn all_lists_of_a_bucket_have_to_be_there() {
        let one = empty().with(16);
        let writer = txn(1, 5, 10, vec![write(1, &empty(), 1, false)]);
        let bucket = |snapshot, seen: Vec<(u32, List)>| {
            [writer.clone(), txn(2, snapshot, 20, vec![(0, Event::ReadBucket { bucket: 1, seen })])]
        };
        for rules in [ERROR, COMMITTED] {
            assert!(checked(rules, &bucket(10, vec![(1, one.clone())])).is_ok());
            assert!(checked(rules, &bucket(9, Vec::new())).is_ok());
            assert!(checked(rules, &bucket(10, vec![(1, one.clone()), (2, one.clone())])).is_err());
        }
        assert!(checked(ERROR, &bucket(10, Vec::new())).is_err());
    }

    /// The second transaction read what the first one wrote to one list, and missed what it wrote to another.
    #[test]
    fn circles_are_told_with_all_their_transactions() {
        let one = empty().with(16);
        let both = txn(1, 5, 10, vec![write(1, &empty(), 1, false), write(2, &empty(), 1, false)]);
        let skewed = txn(2, 5, 20, vec![read(1, &one), read(2, &empty())]);
        let mut oracle = Oracle::new(COMMITTED);
        let txns = [both, skewed];
        oracle.add_versions(&txns).expect("in order");
        let round = oracle.round(&txns);
        assert!(round.check_forward().is_ok());
        let told = round.check_single().expect_err("read skew");
        assert!(told.starts_with("a circle with one missed write: 1, 2 followed"), "{told}");
        assert!(told.contains("2 missed what 1 wrote to list 2") && told.contains("read list 2: []"), "{told}");
        // Each read what the other wrote.
        let circle = [
            txn(1, 5, 10, vec![write(1, &empty(), 1, false), read(2, &empty().with(32))]),
            txn(2, 5, 11, vec![write(2, &empty(), 2, false), read(1, &one)]),
        ];
        let told = checked(COMMITTED, &circle).expect_err("G1c");
        assert!(told.starts_with("a circle of writes and reads"), "{told}");
    }
}
