//! (head of halcyon-schema)
