//! (head of halcyon-memstore)
