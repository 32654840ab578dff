//! Two that close a region at the same time, such as an order to close it and the end of its server.
#![allow(clippy::disallowed_methods)] // threads from outside

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{ErrorKind, Result, SeqId};
use halcyon_env::Mutex;
use halcyon_env::sim::{Fault, Operation};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

use crate::common::*;

/// Long enough for a close that does not wait.
const MOMENT: Duration = Duration::from_millis(200);

/// Holds each flush of a region until it is let go.
struct Holding {
    begun: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl StoreHooks for Holding {
    fn before_flush(&self) -> Result<()> {
        self.begun.send(()).unwrap();
        self.goes_on.lock().recv().unwrap();
        Ok(())
    }

    fn after_flush(&self) {}

    fn may_drop_in_memory(&self) -> bool {
        true
    }

    fn begin(&self, _: &Bytes, _: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
        Ok(None)
    }
}

/// A region with one row in memory, whose flushes say that they have begun, and wait.
fn bench() -> (Bench, Receiver<()>, Sender<()>) {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    write(&bench, "acknowledged", MutationKind::Put).unwrap();
    let ((begun, has_begun), (go_on, goes_on)) = (channel(), channel());
    bench.region.set_store_hooks(Arc::new(Holding { begun, goes_on: Mutex::new(goes_on) }));
    (bench, has_begun, go_on)
}

fn last_seq(bench: &Bench) -> SeqId {
    SeqId::new(bench.region.read_point().get())
}

/// The second one returned at once, while the first one still flushed: the region was taken for closed, and its files for all that it had.
#[test]
fn the_second_close_waits_for_the_flush_of_the_first() {
    for is_flushed in [true, false] {
        let (mut bench, has_begun, go_on) = bench();
        if !is_flushed {
            bench.fs.inject(Fault::new(Operation::Create, ".tmp/").forever());
        }
        let second_is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| bench.region.close(false));
            has_begun.recv().unwrap();
            let second = scope.spawn(|| {
                let closed = bench.region.close(false);
                second_is_over.store(true, Ordering::SeqCst);
                closed
            });
            std::thread::sleep(MOMENT);
            assert!(!second_is_over.load(Ordering::SeqCst), "the first one flushes");
            go_on.send(()).unwrap();
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            if is_flushed {
                assert_eq!(first.unwrap(), Some(last_seq(&bench)));
                assert_eq!(second.unwrap(), None, "it has flushed nothing, and says so");
            } else {
                first.unwrap_err();
                assert_eq!(second.unwrap_err().kind(), ErrorKind::Stopping);
            }
        });
        bench.fs.clear_faults();
        assert_eq!(store_files(&bench).len(), usize::from(is_flushed));
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["acknowledged"]);
    }
}

/// A server that gives up leaves everything to the WAL: it waits for no flush, and nobody says afterwards that there was one.
#[test]
fn a_close_without_a_flush_waits_for_none_and_is_none() {
    let (bench, has_begun, go_on) = bench();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| bench.region.close(false));
        has_begun.recv().unwrap();
        assert_eq!(bench.region.close(true).unwrap(), None);
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap(), Some(last_seq(&bench)));
    });
    assert_eq!(bench.region.close(false).unwrap(), None);

    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    write(&bench, "acknowledged", MutationKind::Put).unwrap();
    bench.region.close(true).unwrap();
    for _ in 0..2 {
        assert_eq!(bench.region.close(false).unwrap_err().kind(), ErrorKind::Stopping);
    }
    assert!(store_files(&bench).is_empty());
    bench.take_over().unwrap();
    assert_eq!(rows(&bench), ["acknowledged"]);
}
