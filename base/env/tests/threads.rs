//! What a thread says of itself to the operating system.
#![allow(clippy::disallowed_methods)] // looks into /proc

use halcyon_env::{spawn_thread, step_back};

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
        step_back(3);
        told.send(nice()).unwrap();
    });
    assert_eq!(behind.recv().unwrap(), (before + 3).min(19));
    assert_eq!(nice(), before);
    thread.unwrap().join().unwrap();
}
