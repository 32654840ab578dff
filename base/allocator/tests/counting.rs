//! A process of its own: its allocator counts.

use std::hint::black_box;

use halcyon_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn every_allocation_is_counted() {
    let before = CountingAllocator::counts();
    let mut bytes = black_box(Vec::<u8>::with_capacity(1000));
    bytes.reserve_exact(3000);
    let after = CountingAllocator::counts();
    // Other threads of the test's harness may allocate too.
    assert!(after.count >= before.count + 2, "{before:?} {after:?}");
    assert!(after.bytes >= before.bytes + 4000, "{before:?} {after:?}");
}
