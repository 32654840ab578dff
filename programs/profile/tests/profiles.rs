//! Profiles of a program that works: this one.

use std::hint::black_box;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_allocator::SampledAllocator;
use halcyon_env::{Clock, SystemClock, spawn_thread};
use halcyon_profile::{AllocationProfile, CpuProfile, Folded};

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

/// Share of the stacks of one thread that are as wanted.
fn share_of(folded: &Folded, thread: &str, is_wanted: impl Fn(&[String]) -> bool) -> f64 {
    let of_thread = || folded.iter().filter(|(stack, _)| stack[0] == thread);
    let all: u64 = of_thread().map(|(_, weight)| weight).sum();
    let wanted: u64 = of_thread().filter(|(stack, _)| is_wanted(stack)).map(|(_, weight)| weight).sum();
    wanted as f64 / all.max(1) as f64
}

/// Share of the stacks of one thread in which a function is.
fn share(folded: &Folded, thread: &str, function: &str) -> f64 {
    share_of(folded, thread, |stack| stack.iter().any(|name| name.contains(function)))
}

/// The copy is the C library's, so its stacks show whether walks pass the library.
#[inline(never)]
fn busy_in_a_library(numbers: &mut [u8]) {
    for _ in 0..20 {
        black_box(&mut *numbers).rotate_left(1);
    }
}

#[inline(never)]
fn deep(levels: usize, work: &mut dyn FnMut()) {
    if levels == 0 {
        work()
    } else {
        deep(levels - 1, black_box(work))
    }
    black_box(levels); // no tail call
}

#[inline(never)]
fn busy_with_numbers() {
    let mut sum = 0u64;
    for number in 0..50_000u64 {
        sum = black_box(sum.wrapping_mul(31) ^ number);
    }
    black_box(sum);
}

#[inline(never)]
fn busy_with_memory() {
    for _ in 0..200 {
        drop(black_box(Vec::<u8>::with_capacity(black_box(10_000))));
    }
}

fn while_running(name: &str, mut work: impl FnMut() + Send + 'static, body: impl FnOnce()) {
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let thread = spawn_thread(name, move || {
        while !told.load(Ordering::Relaxed) {
            work();
        }
    });
    body();
    ends.store(true, Ordering::Relaxed);
    thread.unwrap().join().unwrap();
}

/// One test: a process has one profile of a kind at a time, and other tests would be in it.
#[test]
fn profiles_name_the_functions_that_take_time_or_memory() {
    let clock = Arc::new(SystemClock::new());
    let mut numbers = vec![7u8; 100_000];
    let work = move || deep(20, &mut || (busy_with_numbers(), busy_in_a_library(&mut numbers)).1);
    while_running("worker", work, || {
        let profile = CpuProfile::start(clock.clone(), 500).unwrap();
        let second = CpuProfile::start(clock.clone(), 500).map(|_| ());
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AlreadyExists);
        clock.sleep(Duration::from_secs(2));
        let profile = profile.finish().unwrap();
        let text = profile.folded.to_string();
        assert!(profile.samples_count >= 50, "{} samples", profile.samples_count);
        assert_eq!(profile.lost_count, 0);
        // nearly all stacks are whole: all levels are there, and the thread's body around them
        let is_whole = |stack: &[String]| {
            let levels = stack.iter().filter(|name| name.contains("profiles::deep")).count();
            levels == 21 && stack[1].contains("closure")
        };
        let whole = share_of(&profile.folded, "worker", is_whole);
        assert!(whole > 0.95, "{whole}\n{text}");
        let numbers = share(&profile.folded, "worker", "profiles::busy_with_numbers");
        assert!(numbers > 0.05, "{numbers}\n{text}");
    });

    // the profiler can be used again, also after one that nobody asked for its result
    drop(CpuProfile::start(clock.clone(), 100).unwrap());
    while_running(
        "allocating",
        || (busy_with_memory(), busy_with_numbers()).1,
        || {
            let cpu = CpuProfile::start(clock.clone(), 1000).unwrap();
            let profile = AllocationProfile::start(100_000).unwrap();
            let second = AllocationProfile::start(100_000).map(|_| ());
            assert_eq!(second.unwrap_err().kind(), ErrorKind::AlreadyExists);
            clock.sleep(Duration::from_secs(1));
            let profile = profile.finish().unwrap();
            let text = profile.folded.to_string();
            assert!(profile.samples_count > 10, "{text}");
            assert!(share(&profile.folded, "allocating", "profiles::busy_with_memory") > 0.95, "{text}");
            assert!(!text.contains("halcyon_allocator::"), "all allocations have that part: {text}");
            // both kinds at once, with signals in the midst of allocations
            assert!(share(&cpu.finish().unwrap().folded, "allocating", "profiles::busy_with_memory") > 0.05);
        },
    );
    drop(AllocationProfile::start(1).unwrap());
}
