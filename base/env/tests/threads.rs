//! What a thread says of itself to the operating system.
#![allow(clippy::disallowed_methods)] // looks into /proc

use std::time::Duration;

use halcyon_env::{lower_priority, raise_priority, spawn_thread};
use halcyon_scheduler::slice_length;

/// The calling thread's `nice`: the nineteenth field.
fn nice() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[test]
fn a_thread_that_steps_back_leaves_others_where_they_are() {
    let (before, (told, behind)) = (nice(), std::sync::mpsc::channel());
    let thread = spawn_thread("behind", move || {
        lower_priority(3);
        told.send(nice()).unwrap();
    });
    assert_eq!(behind.recv().unwrap(), (before + 3).min(19));
    assert_eq!(nice(), before);
    thread.unwrap().join().unwrap();
}

#[test]
fn a_thread_that_goes_before_leaves_what_it_starts_where_it_was() {
    let nothing_asked = slice_length().unwrap();
    let (told, asked) = std::sync::mpsc::channel();
    let thread = spawn_thread("before", move || {
        raise_priority();
        told.send((slice_length().unwrap(), nice())).unwrap();
        let child = spawn_thread("child", move || told.send((slice_length().unwrap(), nice())).unwrap());
        child.unwrap().join().unwrap();
    });
    let (before, child) = (asked.recv().unwrap(), asked.recv().unwrap());
    // Linux before 6.12 knows no such thing, and says 0.
    let is_known = !nothing_asked.is_zero();
    assert!(!is_known || (before.0 < nothing_asked && before.0 <= Duration::from_millis(1)), "{before:?}");
    assert_eq!((before.1, child), (nice(), (nothing_asked, nice())));
    thread.unwrap().join().unwrap();
}
