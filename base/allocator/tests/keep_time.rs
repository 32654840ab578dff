//! Whether the allocator does as it is told. A process of its own: what is resident belongs to all of it.

use std::time::Duration;

use halcyon_allocator::{Allocator, set_keep_time};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const PIECES: usize = 64;
const PIECE_BYTES: usize = 1 << 20;

fn resident_bytes() -> usize {
    #[allow(clippy::disallowed_methods)] // what the operating system says of this process
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).expect("a second number").parse::<usize>().expect("a number") * 4096
}

/// Bytes that are no longer resident right after pieces were used and freed.
fn given_back() -> usize {
    let pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; PIECE_BYTES]).collect();
    let used = resident_bytes();
    drop(pieces);
    used.saturating_sub(resident_bytes())
}

/// The option's number is written down by hand, so it is looked whether it is the right one.
#[test]
fn free_memory_stays_as_long_as_was_said() {
    set_keep_time(Duration::from_secs(3600));
    let kept = given_back();
    assert!(kept < PIECES * PIECE_BYTES / 4, "{kept} bytes were given back at once");
    set_keep_time(Duration::ZERO);
    let gone = given_back();
    assert!(gone > PIECES * PIECE_BYTES / 2, "only {gone} bytes were given back");
}
