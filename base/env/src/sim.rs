//! A simulated file system (to be filled).
