//! (head of halcyon-rpc)
