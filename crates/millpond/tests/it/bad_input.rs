//! Each mistake gets one clear error.
