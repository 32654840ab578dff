//! (head of halcyon-wal)
