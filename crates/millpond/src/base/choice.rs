//! A setting that is one of a few values, and may change while others read it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Which of a few values is in force.
pub(crate) struct Choice<T: 'static> {
    of: &'static [T],
    at: AtomicUsize,
}

impl<T: Copy + PartialEq> Choice<T> {
    /// One of `of`, first `value`, which is among them.
    pub(crate) fn new(of: &'static [T], value: T) -> Choice<T> {
        let choice = Choice { of, at: AtomicUsize::new(0) };
        choice.set(value);
        choice
    }

    /// The value in force.
    pub(crate) fn get(&self) -> T {
        // Relaxed, as in `set`: nothing else is said by it. Who reads an old value has come a moment earlier.
        self.of[self.at.load(Ordering::Relaxed)]
    }

    /// Puts another one in force.
    pub(crate) fn set(&self, value: T) {
        let at = self.of.iter().position(|of| *of == value);
        debug_assert!(at.is_some(), "each value that it may have is listed");
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
