//! The log's threads: `mp-log`, which flushes the log for commits that do not wait, and with the classic policies the
//! closer of `recent_closed` and the threads of the pipeline.

use std::sync::Arc;

use crate::background::threads::Threads;
use crate::base::error::Error;
use crate::engine::Engine;
use crate::redo::log::Log;
use crate::redo::pipeline::Pipeline;
use crate::redo::waiters::Stage;

/// Starts `mp-log`, and the threads that the log's policies need.
pub(crate) fn start(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let log = &engine.core.log;
    threads.ring_at_end(&log.flusher_bell);
    threads.start("mp-log", engine, |engine, end| engine.core.log.flush_for_others(|| end.is_near()))?;
    if log.recent_closed.is_some() {
        threads.start("mp-closer", engine, |engine, end| {
            let window = engine.core.log.recent_closed.iter();
            window.for_each(|window| window.close_groups(|| end.is_near()));
            Ok(())
        })?;
    }
    let Some(pipeline) = &log.pipeline else { return Ok(()) };
    // From here on waiters leave the work to the threads that start next. If one cannot start, `end` undoes this.
    pipeline.begin();
    type Work = fn(&Engine, &dyn Fn() -> bool) -> Result<(), Error>;
    let works: [(&str, Work); 4] = [
        ("mp-log-write", |engine, is_ending| with(engine, |of, log| of.write_all(log, is_ending))),
        ("mp-log-flush", |engine, is_ending| with(engine, |of, log| of.flush_all(log, is_ending))),
        ("mp-log-written", |engine, is_ending| with(engine, |of, log| of.notify_all(log, Stage::Written, is_ending))),
        ("mp-log-flushed", |engine, is_ending| with(engine, |of, log| of.notify_all(log, Stage::Flushed, is_ending))),
    ];
    let mut works = works.into_iter();
    let start =
        |(name, work): (_, Work)| threads.start(name, engine, move |engine, end| work(engine, &|| end.is_near()));
    works.try_for_each(start).inspect_err(|_| {
        // Waiters no longer rely on the missing threads. The threads that did start check whether to end.
        pipeline.end();
        pipeline.ring_all();
    })
}

fn with(engine: &Engine, work: impl FnOnce(&Pipeline, &Log) -> Result<(), Error>) -> Result<(), Error> {
    let log = &engine.core.log;
    log.pipeline.as_ref().map_or(Ok(()), |pipeline| work(pipeline, log))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytesize::ByteSize;

    use crate::base::scheduler::run;
    use crate::classic::{ClassicOptions, DirtyTracking};
    use crate::io::simulated::SimulatedDisk;
    use crate::redo::group::GroupKind;
    use crate::redo::recent_closed::LogRecentClosed;
    use crate::{Db, Options};

    /// CLOSED-2: a checkpoint that is taken while a group is between its place and its marks stays before it.
    #[test]
    fn a_group_is_counted_until_its_pages_are_marked() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
            let window = |classic: ClassicOptions| {
                classic.log_recent_closed(LogRecentClosed::Poll).dirty_tracking(DirtyTracking::FlushList)
            };
            let options = options.redo_capacity(ByteSize::mib(2));
            let options = options.classic(|classic| window(classic).log_writer_threads(true));
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
            db.checkpoint().expect("a checkpoint");
            let log = &db.engine().core.log;
            assert_eq!(log.counts.oldest(), None, "nothing is dirty");
            let credit = log.reserve(100, 0).expect("room");
            let mut seen = None;
            let end =
                log.append(credit, GroupKind::Pages, &[0; 100], |start| seen = Some((start, log.counts.oldest())));
            let (start, oldest) = seen.expect("marked");
            assert!(
                end.expect("appended") > start && oldest.is_some_and(|oldest| oldest <= start),
                "{start}: {oldest:?}"
            );
            assert_eq!(log.counts.total(), 0, "and not any longer");
            db.close().expect("closed");
        });
    }
}
