//! The model around the controller.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::outcome::Outcome;
use super::scenario::{Off, Scenario};
use crate::pace::free_frames::FrameNeed;
use crate::pace::log_length::LogLength;
use crate::pace::payment::{INSIDE_BYTES, Payments, Place, Places};
use crate::pace::rules::Rules;
use crate::pace::shares::For;
use crate::pace::tick::{Inputs, OVERDUE_NS, Pace, TICK_NS};

/// Pages that each part of a large transaction changes; a part logs [`INSIDE_BYTES`].
const LARGE_PAGES: u64 = 64;

/// The LSN at which the log begins.
const FIRST_LSN: u64 = 1 << 20;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Bytes of log for an update, and for the record that names an image.
const REDO_BYTES: u64 = 500;
const MAP_BYTES: u64 = 24;

/// The log's reserve in bytes for each frame.
const RESERVE_BYTES: u64 = 48;

/// Bytes of a page.
const PAGE_BYTES: u64 = 16_384;

/// Pages of a lot.
const LOT_PAGES: usize = 64;

const READ_NS: u64 = 100_000;
const SYNC_NS: u64 = 2 * MS;
const SYNC_TICK_NS: u64 = 250 * MS;
const CHECKPOINT_NS: u64 = 5 * MS;
const CHECKPOINT_TICK_NS: u64 = S;
const QUOTA_PERIOD_NS: u64 = 100 * MS;

/// Classes of pages by age that the controller receives.
const AGES: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(usize),
    Apply(usize),
    Large,
    Keeper,
    LotEnd,
    SyncEnd,
    CheckpointEnd,
}

/// State of a page.
#[derive(Clone, Copy, Default)]
struct Page {
    resident: bool,
    /// Used since eviction last considered the page.
    used: bool,
    /// The begin of its oldest change that is in no image; 0: clean.
    rec_lsn: u64,
    /// An image of the page waits for a sync.
    in_flight: bool,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    began_ns: u64,
    /// When the thread would begin at its offered rate, in ns.
    due_ns: u64,
    page: usize,
    /// The thread has a frame for the page, and reads the page into it.
    reads: bool,
    /// The thread's debts: where they end in the payment queues.
    places: Places,
    pays: bool,
    /// When the thread begins, or goes on. Events for other times are void.
    next_ns: u64,
}

/// A large transaction under way.
#[derive(Clone, Copy, Default)]
struct Large {
    left: u64,
    places: Places,
    /// When it began to pay, in ns; 0: it does not pay.
    pays_since_ns: u64,
    /// It waits for room in the log.
    waits: bool,
    /// When it goes on. Events for other times are void.
    next_ns: u64,
}

/// A page that is being written, or waits for a sync: its number, and the LSN at which it is counted.
type Image = (usize, u64);

struct World<'s> {
    scenario: &'s Scenario,
    off: Off,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    event_count: u64,
    random: u64,
    cpu_free_ns: u64,
    quota_period: u64,
    quota_used_ns: u64,
    threads: Vec<Thread>,
    pages: Vec<Page>,
    /// Resident pages in the order of their eviction.
    queue: VecDeque<usize>,
    free_frames: usize,
    frame_waiters: VecDeque<usize>,
    frames_taken: u64,
    frames_taken_before: u64,
    need: FrameNeed,
    target: usize,
    /// The log.
    next_lsn: u64,
    checkpoint_lsn: u64,
    /// Begin of its files, and their capacity in bytes.
    ring: (u64, u64),
    wall_waiters: VecDeque<usize>,
    /// Holders by `lsn / bucket_bytes`, from `first_bucket` on: (frames, images).
    buckets: VecDeque<(u64, u64)>,
    first_bucket: u64,
    bucket_bytes: u64,
    /// Dirty pages in the order of their first changes. Entries of pages written since are skipped.
    dirty: VecDeque<(u64, usize)>,
    /// The keeper.
    keeper_busy: bool,
    lot: Vec<Image>,
    lot_for: For,
    lot_frames: Vec<usize>,
    lot_began_ns: u64,
    unsynced: Vec<Image>,
    syncing: Vec<Image>,
    sync_busy: bool,
    next_sync_ns: u64,
    checkpoint_to: Option<u64>,
    next_checkpoint_ns: u64,
    sync_wanted: bool,
    busy_since_ns: Option<u64>,
    written: u64,
    lots_ns: u64,
    /// The controller.
    pace: Pace,
    payments: Payments,
    length: LogLength,
    large: Large,
    next_tick_ns: u64,
    last_tick_ns: u64,
    /// End of the log when the last lot began.
    logged_lsn: u64,
    last_done_ns: u64,
    outcome: Outcome,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, off: Off) -> Outcome {
    let rules = Rules {
        evidence: off != Off::Evidence,
        floor: off != Off::Floor,
        measured: off != Off::Measure,
        brake: off != Off::Brake,
        slow_average: off != Off::SlowAverage,
    };
    let world = World {
        scenario,
        off,
        now: 1,
        events: BinaryHeap::new(),
        event_count: 0,
        random: 0x9e37_79b9_7f4a_7c15,
        cpu_free_ns: 0,
        quota_period: 0,
        quota_used_ns: 0,
        threads: vec![Thread::default(); scenario.threads],
        pages: vec![Page::default(); scenario.pages],
        queue: VecDeque::new(),
        free_frames: scenario.frames,
        frame_waiters: VecDeque::new(),
        frames_taken: 0,
        frames_taken_before: 0,
        need: FrameNeed::default(),
        target: FrameNeed::default().target(scenario.frames),
        next_lsn: FIRST_LSN,
        checkpoint_lsn: FIRST_LSN,
        ring: (0, scenario.log_bytes),
        wall_waiters: VecDeque::new(),
        buckets: VecDeque::new(),
        first_bucket: 0,
        bucket_bytes: scenario.log_bytes / AGES,
        dirty: VecDeque::new(),
        keeper_busy: false,
        lot: Vec::new(),
        lot_for: For::Log,
        lot_frames: Vec::new(),
        lot_began_ns: 0,
        unsynced: Vec::new(),
        syncing: Vec::new(),
        sync_busy: false,
        next_sync_ns: 0,
        checkpoint_to: None,
        next_checkpoint_ns: 0,
        sync_wanted: false,
        busy_since_ns: None,
        written: 0,
        lots_ns: 0,
        pace: Pace::new(scenario.first_guess, rules),
        payments: Payments::default(),
        length: LogLength::default(),
        large: Large::default(),
        next_tick_ns: 0,
        last_tick_ns: 0,
        logged_lsn: FIRST_LSN,
        last_done_ns: 0,
        outcome: Outcome { per_second: vec![0; scenario.seconds as usize], ..Outcome::default() },
    };
    world.run()
}

impl World<'_> {
    fn run(mut self) -> Outcome {
        if self.scenario.is_warm {
            for page in 0..self.scenario.pages.min(self.scenario.frames - self.target) {
                self.pages[page].resident = true;
                self.queue.push_back(page);
                self.free_frames -= 1;
            }
        }
        for thread in 0..self.threads.len() {
            self.begin_at(thread as u64 * 1000, thread);
        }
        self.at(TICK_NS, Event::Keeper);
        if let Some((second, bytes)) = self.scenario.large {
            self.large.left = bytes;
            self.large_at(second * S);
        }
        // Redo has dirtied pages evenly over the log's age: one change for each earlier update.
        let redone = (self.scenario.log_bytes as f64 * self.scenario.first_age) as u64;
        while self.next_lsn < FIRST_LSN + redone {
            let page = self.random(self.scenario.pages);
            self.mark(page, self.next_lsn);
            self.next_lsn += REDO_BYTES;
        }
        let mut other_ring = self.scenario.other_ring;
        let mut cluster = self.scenario.cluster;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= self.scenario.seconds * S {
                break;
            }
            self.now = at;
            if let Some((_, pages)) = cluster.filter(|(second, _)| at >= second * S) {
                cluster = None;
                let first = self.next_lsn;
                (0..pages).for_each(|page| self.mark(page, first));
                self.next_lsn += 64 * pages as u64;
            }
            if let Some((_, bytes)) = other_ring.filter(|(second, _)| at >= second * S) {
                other_ring = None;
                self.ring = (self.next_lsn, bytes);
            }
            match event {
                Event::Begin(thread) => self.begin(thread),
                Event::Large => self.large_step(),
                Event::Apply(thread) => self.apply(thread),
                Event::Keeper => {
                    if !self.keeper_busy {
                        self.tick();
                    }
                    self.at(self.now + TICK_NS, Event::Keeper);
                    self.keep();
                }
                Event::LotEnd => self.lot_end(),
                Event::SyncEnd => self.sync_end(),
                Event::CheckpointEnd => self.checkpoint_end(),
            }
        }
        self.outcome.capacity = self.pace.rates().capacity_pages_per_s;
        self.outcome.written = self.written;
        self.outcome
    }

    fn at(&mut self, at: u64, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((at, self.event_count, event)));
    }

    fn begin_at(&mut self, at: u64, thread: usize) {
        self.threads[thread].next_ns = at;
        self.at(at, Event::Begin(thread));
    }

    fn large_at(&mut self, at: u64) {
        self.large.next_ns = at;
        self.at(at, Event::Large);
    }

    /// Whether the log has room for `bytes` more.
    fn has_room(&self, bytes: u64) -> bool {
        let (from, capacity) = self.ring;
        self.next_lsn + bytes <= self.checkpoint_lsn.max(from) + capacity
    }

    /// Bytes of log that take room in its files.
    fn age(&self) -> u64 {
        self.next_lsn - self.checkpoint_lsn.max(self.ring.0)
    }

    /// xorshift64
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % below
    }

    /// End of CPU work that begins at `from`: the CPUs serve one job after the other, in each period up to the quota.
    fn cpu(&mut self, from: u64, work_ns: u64) -> u64 {
        let mut at = from.max(self.cpu_free_ns);
        let quota_ns = (QUOTA_PERIOD_NS as f64 * self.scenario.quota) as u64;
        let period = at / QUOTA_PERIOD_NS;
        if period > self.quota_period {
            (self.quota_period, self.quota_used_ns) = (period, 0);
        }
        if self.quota_used_ns + work_ns > quota_ns && self.scenario.quota < 1.0 {
            at = (self.quota_period + 1) * QUOTA_PERIOD_NS;
            (self.quota_period, self.quota_used_ns) = (self.quota_period + 1, 0);
        }
        self.quota_used_ns += work_ns;
        self.cpu_free_ns = at + work_ns;
        self.cpu_free_ns
    }

    fn offered(&self) -> f64 {
        let second = self.now / S;
        self.scenario.offered.iter().rev().find(|(from, _)| *from <= second).map_or(0.0, |(_, rate)| *rate)
    }

    fn begin(&mut self, thread: usize) {
        self.tick_if_overdue();
        let Thread { began_ns, places, next_ns, .. } = self.threads[thread];
        if next_ns != self.now {
            return;
        }
        self.threads[thread].next_ns = u64::MAX;
        if began_ns == 0 {
            self.threads[thread].began_ns = self.now;
        }
        let until = self.payments.wait_until_ns(places, began_ns, self.now, Place::Begin);
        self.threads[thread].pays = until.is_some();
        if let Some(until) = until {
            self.begin_at(until, thread);
            return;
        }
        let (hot, part) = self.scenario.hot;
        let among = if part > 0.0 && (self.random(1000) as f64) < part * 1000.0 { hot } else { self.scenario.pages };
        let page = self.random(among);
        self.threads[thread].page = page;
        if self.pages[page].resident {
            self.pages[page].used = true;
            self.go_on(thread, self.now);
        } else if self.frame_waiters.is_empty() && self.free_frames > 0 {
            self.take_frame(thread);
            self.keep_if_short();
        } else {
            self.frame_waiters.push_back(thread);
            self.keep();
        }
    }

    fn take_frame(&mut self, thread: usize) {
        self.free_frames -= 1;
        self.frames_taken += 1;
        self.threads[thread].reads = true;
        self.go_on(thread, self.now + READ_NS);
    }

    fn go_on(&mut self, thread: usize, from: u64) {
        let work_ns = (1e9 / self.scenario.cpu_per_s) as u64;
        let done = self.cpu(from, work_ns);
        self.at(done, Event::Apply(thread));
    }

    fn apply(&mut self, thread: usize) {
        self.tick_if_overdue();
        let page = self.threads[thread].page;
        if std::mem::take(&mut self.threads[thread].reads) {
            // Another thread may have read the page first.
            self.free_frames += usize::from(self.pages[page].resident);
        }
        if !self.pages[page].resident {
            self.pages[page].resident = true;
            self.queue.push_back(page);
        }
        if !self.wall_waiters.is_empty() || !self.has_room(REDO_BYTES) {
            self.outcome.log_wall_waits += 1;
            self.wall_waiters.push_back(thread);
            self.keep();
            return;
        }
        self.log_update(thread);
    }

    fn log_update(&mut self, thread: usize) {
        let page = self.threads[thread].page;
        self.mark(page, self.next_lsn);
        self.next_lsn += REDO_BYTES;
        let mut places = self.threads[thread].places;
        self.payments.charge(REDO_BYTES, false, self.now, &mut places);
        self.outcome.per_second[(self.now / S) as usize] += 1;
        let gap = (self.now - self.last_done_ns) as f64 / 1e6;
        self.outcome.longest_gap_ms = self.outcome.longest_gap_ms.max(gap);
        self.last_done_ns = self.now;
        let each_ns = (self.threads.len() as f64 / self.offered() * 1e9) as u64;
        let Thread { began_ns, due_ns, .. } = self.threads[thread];
        let took_ms = (self.now - began_ns) as f64 / 1e6;
        self.outcome.slowest_ms = self.outcome.slowest_ms.max(took_ms);
        // A thread that is late does not catch up.
        let due_ns = (due_ns + each_ns).max(self.now);
        self.threads[thread] = Thread { began_ns: 0, due_ns, page, reads: false, places, pays: false, next_ns: 0 };
        self.begin_at(due_ns, thread);
    }

    /// One part of a large transaction, which pays for each part.
    fn large_step(&mut self) {
        self.tick_if_overdue();
        if self.large.next_ns != self.now {
            return;
        }
        if self.large.pays_since_ns == 0 {
            let part = INSIDE_BYTES.min(self.large.left);
            if !self.has_room(part) {
                self.outcome.log_wall_waits += u64::from(!self.large.waits);
                self.large.waits = true;
                self.keep();
                return;
            }
            self.large.waits = false;
            self.large.left -= part;
            for _ in 0..LARGE_PAGES {
                let page = self.random(self.scenario.pages);
                if self.pages[page].resident {
                    self.mark(page, self.next_lsn);
                }
            }
            self.next_lsn += part;
            self.payments.charge(part, self.off != Off::LargeQueue, self.now, &mut self.large.places);
            self.large.pays_since_ns = self.now;
        }
        let Large { places, pays_since_ns, left, .. } = self.large;
        let log_nearly_full = self.age() > self.ring.1 / 10 * 9;
        let place = Place::Statement { owed: INSIDE_BYTES, others_wait: false, log_nearly_full };
        if let Some(until) = self.payments.wait_until_ns(places, pays_since_ns, self.now, place) {
            self.large_at(until);
        } else if left > 0 {
            self.large.pays_since_ns = 0;
            let done = self.cpu(self.now, LARGE_PAGES * (1e9 / self.scenario.cpu_per_s) as u64);
            self.large_at(done);
        }
    }

    fn bucket(&mut self, lsn: u64) -> &mut (u64, u64) {
        let number = lsn / self.bucket_bytes;
        if self.buckets.is_empty() {
            self.first_bucket = number;
        }
        let index = (number - self.first_bucket) as usize;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, (0, 0));
        }
        &mut self.buckets[index]
    }

    fn mark(&mut self, page: usize, lsn: u64) {
        if self.pages[page].rec_lsn == 0 {
            self.pages[page].rec_lsn = lsn;
            self.bucket(lsn).0 += 1;
            self.dirty.push_back((lsn, page));
        }
    }

    fn tick_if_overdue(&mut self) {
        if self.now >= self.next_tick_ns + OVERDUE_NS && self.off != Off::OverdueTick {
            self.tick();
        }
    }

    fn tick(&mut self) {
        if self.now < self.next_tick_ns {
            return;
        }
        let seconds = (self.now - self.last_tick_ns) as f64 / 1e9;
        self.last_tick_ns = self.now;
        self.next_tick_ns = self.now + TICK_NS;
        let ages: Vec<(u64, u64)> = (self.first_bucket + 1..)
            .zip(&self.buckets)
            .filter(|(_, (frames, _))| *frames > 0)
            .map(|(end, (frames, _))| (end * self.bucket_bytes, *frames))
            .collect();
        let goal = self.scenario.shorter.filter(|(second, _)| self.now >= second * S);
        let (ring_lsn, room) = self.ring;
        let goal = goal.map_or(room, |(_, bytes)| bytes);
        let length = self.length.tick(seconds, goal, room, self.age());
        // The progress of a lot counts only when the lot ends.
        let inputs = Inputs {
            now_ns: self.now,
            next_lsn: self.next_lsn,
            checkpoint_lsn: self.checkpoint_lsn,
            capacity: if self.off == Off::LittleByLittle { goal } else { length },
            full: room,
            ring_lsn: if self.off == Off::OtherRing { 0 } else { ring_lsn },
            ages: &ages,
            written: self.written,
            written_in_lots: self.written,
            lots_ns: self.lots_ns,
            busy_since_ns: self.busy_since_ns,
        };
        let rates = self.pace.tick(inputs);
        if self.off != Off::Throttle {
            let is_news = self.payments.set_limit(rates.redo_limit, self.now);
            for thread in 0..self.threads.len() {
                if is_news && self.threads[thread].pays {
                    self.begin_at(self.now, thread);
                }
            }
            if is_news && self.large.pays_since_ns > 0 && !self.large.waits {
                self.large_at(self.now);
            }
        }
        if rates.redo_limit.is_finite() {
            self.outcome.limited_s += seconds;
        }
        self.outcome.age_max = self.outcome.age_max.max(self.age() as f64 / self.ring.1 as f64);
        let taken = self.frames_taken - self.frames_taken_before;
        self.frames_taken_before = self.frames_taken;
        self.need.tick(taken, seconds);
        self.target = self.need.target(self.scenario.frames);
    }

    fn short_of_frames(&self) -> usize {
        (self.target + self.frame_waiters.len()).saturating_sub(self.free_frames)
    }

    fn keep_if_short(&mut self) {
        if self.short_of_frames() > self.target / 2 {
            self.keep();
        }
    }

    /// The keeper's next action, unless it waits for the device.
    fn keep(&mut self) {
        if self.keeper_busy {
            return;
        }
        self.publish_if_due();
        let wall = !self.has_room(REDO_BYTES);
        let owed = match self.off {
            Off::Envelope if self.age() > self.ring.1 * 3 / 4 => LOT_PAGES,
            Off::Envelope => 0,
            _ if wall => LOT_PAGES,
            _ => self.pace.owed(),
        };
        let short = self.short_of_frames();
        if self.unsynced.len() + self.syncing.len() + LOT_PAGES > (self.scenario.frames / 8).max(128) {
            // At the limit of images that wait for a sync, writes wait, too.
            self.sync_wanted = true;
            self.publish_if_due();
            return;
        }
        let next = match (short > 0, owed >= 1) {
            (false, false) => {
                self.busy_since_ns = None;
                return;
            }
            (true, false) => For::Frames,
            (false, true) => For::Log,
            (true, true) if self.off == Off::Shares => For::Frames,
            (true, true) => self.pace.next(),
        };
        match next {
            For::Frames => {
                self.write_victims(short);
                if !self.keeper_busy && owed >= 1 {
                    self.write_oldest(owed.min(LOT_PAGES));
                }
            }
            For::Log => self.write_oldest(owed.min(LOT_PAGES)),
        }
    }

    /// Clean victims are free at once, dirty victims after their write.
    fn write_victims(&mut self, short: usize) {
        let mut looked = 0;
        while self.lot_frames.len() < LOT_PAGES && looked < 4 * LOT_PAGES {
            looked += 1;
            let Some(page) = self.queue.pop_front() else { break };
            let state = &mut self.pages[page];
            if std::mem::take(&mut state.used) {
                self.queue.push_back(page);
            } else if state.rec_lsn == 0 {
                state.resident = false;
                self.free_frames += 1;
                if self.free_frames >= self.target + self.frame_waiters.len() {
                    break;
                }
            } else if state.in_flight {
                self.sync_wanted = true;
                self.queue.push_back(page);
            } else {
                self.lot_frames.push(page);
                if self.lot_frames.len() >= short {
                    break;
                }
            }
        }
        self.hand_over();
        let frames = self.lot_frames.clone();
        self.begin_lot(For::Frames, &frames);
    }

    fn write_oldest(&mut self, count: usize) {
        let mut pages = Vec::with_capacity(count);
        let mut held = Vec::new();
        while pages.len() < count {
            let Some((lsn, page)) = self.dirty.pop_front() else { break };
            if self.pages[page].rec_lsn != lsn {
                continue;
            }
            if self.pages[page].in_flight {
                self.sync_wanted = true;
                held.push((lsn, page));
            } else {
                pages.push(page);
            }
        }
        held.into_iter().rev().for_each(|entry| self.dirty.push_front(entry));
        self.begin_lot(For::Log, &pages);
    }

    fn begin_lot(&mut self, lot_for: For, pages: &[usize]) {
        if pages.is_empty() {
            // The remaining dirty pages wait for a sync.
            self.busy_since_ns = None;
            return;
        }
        self.busy_since_ns.get_or_insert(self.now);
        for &page in pages {
            let rec_lsn = std::mem::take(&mut self.pages[page].rec_lsn);
            let bucket = self.bucket(rec_lsn);
            bucket.0 -= 1;
            bucket.1 += 1;
            self.pages[page].in_flight = true;
            self.lot.push((page, rec_lsn));
        }
        let both = self.short_of_frames() > 0 && self.pace.owed() >= 1;
        self.pace.pay(lot_for, pages.len(), both);
        self.lot_for = lot_for;
        self.lot_began_ns = self.now;
        self.keeper_busy = true;
        // The log written meanwhile goes to the same device.
        let bytes = pages.len() as u64 * PAGE_BYTES + self.next_lsn - self.logged_lsn;
        self.logged_lsn = self.next_lsn;
        let end = self.scenario.device.end_of(self.now, pages.len() as u64, bytes);
        let factor = 1.0 + self.scenario.noise * (self.random(2001) as f64 / 1000.0 - 1.0);
        let end = self.now + ((end - self.now) as f64 * factor) as u64;
        self.at(end, Event::LotEnd);
    }

    fn lot_end(&mut self) {
        self.keeper_busy = false;
        let pages = self.lot.len() as u64;
        self.lots_ns += self.now - self.lot_began_ns;
        self.need.written((self.now - self.lot_began_ns) as f64 / 1e9);
        self.written += pages;
        for page in std::mem::take(&mut self.lot_frames) {
            if self.pages[page].rec_lsn == 0 {
                self.pages[page].resident = false;
                self.free_frames += 1;
            } else {
                self.queue.push_back(page);
            }
        }
        let lot = std::mem::take(&mut self.lot);
        self.unsynced.extend(lot);
        self.hand_over();
        if self.now >= self.next_tick_ns {
            self.tick();
        }
        self.keep();
    }

    fn hand_over(&mut self) {
        while self.free_frames > 0 {
            let Some(thread) = self.frame_waiters.pop_front() else { break };
            self.take_frame(thread);
        }
    }

    fn publish_if_due(&mut self) {
        let many = self.unsynced.len() > (self.scenario.frames / 16).max(64);
        let due = self.now >= self.next_sync_ns || many || self.sync_wanted;
        if self.sync_busy || !due {
            return;
        }
        self.next_sync_ns = self.now + SYNC_TICK_NS;
        self.sync_wanted = false;
        if !self.unsynced.is_empty() {
            self.sync_busy = true;
            self.syncing = std::mem::take(&mut self.unsynced);
            let end = self.scenario.device.end_of(self.now, 1, 0).max(self.now + SYNC_NS);
            self.at(end, Event::SyncEnd);
        } else {
            self.checkpoint_if_due();
        }
    }

    fn sync_end(&mut self) {
        self.sync_busy = false;
        for (page, rec_lsn) in std::mem::take(&mut self.syncing) {
            self.next_lsn += MAP_BYTES;
            self.pages[page].in_flight = false;
            self.bucket(rec_lsn).1 -= 1;
        }
        self.checkpoint_if_due();
        self.keep();
    }

    fn checkpoint_if_due(&mut self) {
        while self.buckets.front().is_some_and(|(frames, images)| frames + images == 0) && self.buckets.len() > 1 {
            self.buckets.pop_front();
            self.first_bucket += 1;
        }
        let oldest = self.first_bucket * self.bucket_bytes;
        let gain = oldest.saturating_sub(self.checkpoint_lsn);
        let wanted = gain > self.ring.1 / 16 || !self.wall_waiters.is_empty() || self.now >= self.next_checkpoint_ns;
        if gain == 0 || !wanted || self.sync_busy {
            return;
        }
        self.next_checkpoint_ns = self.now + CHECKPOINT_TICK_NS;
        self.sync_busy = true;
        self.checkpoint_to = Some(oldest);
        let end = self.scenario.device.end_of(self.now, 1, 0).max(self.now + CHECKPOINT_NS);
        self.at(end, Event::CheckpointEnd);
    }

    fn checkpoint_end(&mut self) {
        self.sync_busy = false;
        self.checkpoint_lsn = self.checkpoint_to.take().unwrap_or(self.checkpoint_lsn).max(self.checkpoint_lsn);
        let reserve = RESERVE_BYTES * self.scenario.frames as u64;
        debug_assert!(reserve < self.scenario.log_bytes);
        while self.has_room(REDO_BYTES) {
            let Some(thread) = self.wall_waiters.pop_front() else { break };
            self.log_update(thread);
        }
        if self.large.waits {
            self.large_at(self.now);
        }
        self.keep();
    }
}
