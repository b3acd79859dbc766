//! Touches memory for frames ahead of need: the first thread to touch it waits until the kernel has zeroed it.

use std::sync::Arc;

use crate::background::keeper::Keeper;

impl Keeper {
    /// Has another thread touch the memory of the frames that will be taken next: that may take long.
    pub(super) fn touch_ahead(&mut self) {
        if !self.engine.core.pool.is_to_touch() {
            return;
        }
        if self.toucher.busy() && self.toucher.result(false).is_none() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        self.toucher.begin(Box::new(move || {
            while engine.core.pool.touch_ahead() && !engine.requests.lock().stop {}
            Ok(())
        }));
    }
}

#[cfg(test)]
mod tests {
    use crate::{ByteSize, Db, Options};

    /// Of 48 MiB, 2 MiB are touched during the open, and more as soon as a thread takes a frame.
    #[test]
    fn memory_is_touched_while_frames_are_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::new().cached(true).buffer_pool_size(ByteSize::mib(48));
        let db = Db::open(dir.path(), options).expect("opened");
        let pool = &db.engine().core.pool;
        assert_eq!(pool.len(), 3072);
        assert!((128..=512).contains(&pool.touched()), "opening may have taken some");
        db.create_tree("t").expect("created");
        let mut looks = 0u32;
        while pool.touched() < 256 {
            std::thread::yield_now();
            looks += 1;
            assert!(looks < 20_000_000, "no thread touches memory: {} frames", pool.touched());
        }
        db.close().expect("closed");
    }
}
