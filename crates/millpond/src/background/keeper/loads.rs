//! The keeper's part in bulk loads: it names their images together with all others.

use crate::background::keeper::Keeper;
use crate::engine::Naming;

impl Keeper {
    /// Answers the loads whose images are durable and named, and begins a sync for the others. Waits for nothing.
    pub(super) fn serve_loads(&mut self) {
        let mut requests = self.engine.requests.lock();
        if requests.naming.is_empty() {
            return;
        }
        let (_, named) = self.engine.core.store.turns();
        let told: Vec<Naming> = requests.naming.extract_if(.., |naming| naming.turn <= named).collect();
        let more = !requests.naming.is_empty();
        drop(requests);
        for naming in told {
            naming.handoff.give(Ok(()));
        }
        // A sync under way rings the bell when it ends.
        if more {
            self.begin_publishing();
        }
    }
}
