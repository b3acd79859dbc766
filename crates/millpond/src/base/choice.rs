//! A setting with a few possible values, which may change while other threads read it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The value in force, out of a fixed list.
pub(crate) struct Choice<T: 'static> {
    of: &'static [T],
    at: AtomicUsize,
}

impl<T: Copy + PartialEq> Choice<T> {
    /// A setting with the possible values `of`, at first `value`, which must be among them.
    pub(crate) fn new(of: &'static [T], value: T) -> Choice<T> {
        let choice = Choice { of, at: AtomicUsize::new(0) };
        choice.set(value);
        choice
    }

    /// The value in force.
    pub(crate) fn get(&self) -> T {
        // Relaxed, as in `set`: no other data depends on it. A thread that reads the old value might as well have come
        // earlier.
        self.of[self.at.load(Ordering::Relaxed)]
    }

    /// Puts `value` in force.
    pub(crate) fn set(&self, value: T) {
        let at = self.of.iter().position(|of| *of == value);
        debug_assert!(at.is_some(), "`value` is one of the listed values");
        if let Some(at) = at {
            self.at.store(at, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_set_last_is_in_force() {
        let choice = Choice::new(&['a', 'b', 'c'], 'b');
        assert_eq!(choice.get(), 'b');
        choice.set('c');
        choice.set('a');
        assert_eq!(choice.get(), 'a');
    }
}
