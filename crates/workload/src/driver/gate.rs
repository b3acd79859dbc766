//! The gate at which workers wait until all workers have been started.

use parking_lot::{Condvar, Mutex};

use crate::recorder::RunClock;

/// State of the gate.
#[derive(Clone, Copy, Debug)]
enum State {
    Shut,
    Open(RunClock),
    CalledOff,
}

/// Shut at first. Then the collector's thread opens it, which starts the run's clock, or calls the run off.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// A shut gate.
    pub(crate) fn new() -> Gate {
        Gate { state: Mutex::new(State::Shut), changed: Condvar::new() }
    }

    /// Opens the gate and starts the clock.
    pub(crate) fn open(&self) -> RunClock {
        let clock = RunClock::start();
        *self.state.lock() = State::Open(clock);
        self.changed.notify_all();
        clock
    }

    /// Ends the run if it has not begun; all waiting workers leave.
    pub(crate) fn call_off(&self) {
        let mut state = self.state.lock();
        if let State::Shut = *state {
            *state = State::CalledOff;
            self.changed.notify_all();
        }
    }

    /// Waits until the gate opens; `None` if the run was called off.
    pub(crate) fn wait(&self) -> Option<RunClock> {
        let mut state = self.state.lock();
        loop {
            match *state {
                State::Shut => self.changed.wait(&mut state),
                State::Open(clock) => return Some(clock),
                State::CalledOff => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_gate_gives_all_one_clock_and_a_called_off_one_none() {
        let gate = Gate::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait().is_some());
            gate.open();
            assert!(waiting.join().unwrap());
        });
        assert!(gate.wait().is_some());

        let gate = Gate::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait().is_none());
            gate.call_off();
            assert!(waiting.join().unwrap());
        });
    }
}
