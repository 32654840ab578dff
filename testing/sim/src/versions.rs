//! A row with many versions, all at times that its clients choose: which cells a read may show.
//!
//! ```text
//! <two digits>v   v:<letter> at a small time   the number of the put that wrote it
//! ```
//!
//! Times come in any order, but each is used once in its column, and a put behind a delete has a time that the delete does not hide. A
//! delete begins when no copy of a put is on its way any more: behind a compaction that has let the delete go, such a copy would
//! be shown, by HBase too. So each put and each delete counts in itself, whatever the order in which they arrive.

use std::collections::{BTreeMap, BTreeSet};

use halcyon_proto::pb::mutation_proto::DeleteType;

use crate::register::Window;

/// Columns of a row.
pub(crate) const LETTERS: u8 = 3;
/// Times that are chosen lie so far above those that are deleted.
const TIMES: usize = 40;

/// A column and a time.
pub(crate) type At = (u8, u64);
/// The numbers of puts.
pub(crate) type Cells = BTreeMap<At, u64>;

#[derive(Clone, Debug)]
struct Put {
    id: u64,
    cells: Vec<At>,
    begun_ns: u64,
    /// Acknowledged or shown.
    certain_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delete {
    pub(crate) kind: DeleteType,
    pub(crate) letter: u8,
    pub(crate) time: u64,
}

impl Delete {
    fn hides(self, (letter, time): At) -> bool {
        match self.kind {
            DeleteType::DeleteOneVersion => letter == self.letter && time == self.time,
            DeleteType::DeleteMultipleVersions => letter == self.letter && time <= self.time,
            DeleteType::DeleteFamily => time <= self.time,
            DeleteType::DeleteFamilyVersion => time == self.time,
        }
    }
}

#[derive(Clone, Debug)]
struct Deleted {
    delete: Delete,
    begun_ns: u64,
    certain_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    puts: Vec<Put>,
    deletes: Vec<Deleted>,
    /// What is hidden up to a time, so that no later put may have it.
    floor: u64,
    used: BTreeSet<u64>,
}

impl Versions {
    /// A time for the next put. `below` chooses a number.
    pub(crate) fn new_time(&mut self, mut below: impl FnMut(usize) -> usize) -> u64 {
        let first = self.floor + 1;
        let chosen = first + below(TIMES) as u64;
        let time = (chosen..).find(|time| !self.used.contains(time)).expect("there are more times than puts");
        self.used.insert(time);
        time
    }

    /// What is deleted next. `None`: there is nothing yet.
    pub(crate) fn next_delete(&self, mut below: impl FnMut(usize) -> usize) -> Option<Delete> {
        let kind = [
            DeleteType::DeleteOneVersion,
            DeleteType::DeleteMultipleVersions,
            DeleteType::DeleteFamily,
            DeleteType::DeleteFamilyVersion,
        ][below(4)];
        let all: Vec<At> = self.puts.iter().flat_map(|put| &put.cells).copied().collect();
        let (letter, time) = *all.get(below(all.len().max(1)))?;
        Some(Delete { kind, letter, time })
    }

    pub(crate) fn begin_put(&mut self, id: u64, cells: Vec<At>, now_ns: u64) -> usize {
        self.puts.push(Put { id, cells, begun_ns: now_ns, certain_ns: None });
        self.puts.len() - 1
    }

    pub(crate) fn begin_delete(&mut self, delete: Delete, now_ns: u64) -> usize {
        if matches!(delete.kind, DeleteType::DeleteFamily | DeleteType::DeleteMultipleVersions) {
            self.floor = self.floor.max(delete.time);
        }
        self.deletes.push(Deleted { delete, begun_ns: now_ns, certain_ns: None });
        self.deletes.len() - 1
    }

    pub(crate) fn settle_put(&mut self, number: usize, now_ns: u64) {
        self.puts[number].certain_ns.get_or_insert(now_ns);
    }

    pub(crate) fn settle_delete(&mut self, number: usize, now_ns: u64) {
        self.deletes[number].certain_ns.get_or_insert(now_ns);
    }

    /// Says what is wrong with a read of all versions.
    pub(crate) fn check(&self, found: &Cells, window: Window) -> Result<(), String> {
        for (&(letter, time), id) in found {
            let name = || format!("put {id} of {} at {time}", char::from(letter));
            let put = self.puts.iter().find(|put| put.id == *id && put.cells.contains(&(letter, time)));
            let Some(put) = put else { return Err(format!("{} was never begun", name())) };
            if put.begun_ns > window.ended_ns {
                return Err(format!("{} began behind the read", name()));
            }
            let hides = |it: &&Deleted| {
                it.delete.hides((letter, time))
                    && it.certain_ns.is_some_and(|certain| certain < window.begun_ns)
            };
            if let Some(deleted) = self.deletes.iter().find(hides) {
                return Err(format!("{} is back: {:?} was there before the read", name(), deleted.delete));
            }
        }
        for put in &self.puts {
            let may_be_hidden =
                |at: At| self.deletes.iter().any(|it| it.delete.hides(at) && it.begun_ns <= window.ended_ns);
            let visible = put.cells.iter().filter(|at| !may_be_hidden(**at));
            let (shown, missing): (Vec<&At>, Vec<&At>) = visible.partition(|at| found.contains_key(at));
            let Some((letter, time)) = missing.first() else { continue };
            let name = format!("put {} of {} at {time}", put.id, char::from(*letter));
            if put.certain_ns.is_some_and(|certain_ns| certain_ns < window.begun_ns) {
                return Err(format!("{name} is lost"));
            }
            if !shown.is_empty() {
                return Err(format!("{name} is missing, and other cells of it are there"));
            }
        }
        Ok(())
    }

    /// What a read has shown stays, and what it does not show any more does not come back.
    pub(crate) fn observe(&mut self, found: &Cells, window: Window) {
        for put in &mut self.puts {
            if put.cells.iter().any(|at| found.get(at) == Some(&put.id)) {
                put.certain_ns.get_or_insert(window.ended_ns);
            }
            if put.certain_ns.is_none_or(|certain_ns| certain_ns >= window.begun_ns) {
                continue;
            }
            for at in put.cells.iter().filter(|at| !found.contains_key(at)) {
                let mut hiding = self.deletes.iter_mut().filter(|it| it.delete.hides(*at));
                if let (Some(only), None) = (hiding.next(), hiding.next()) {
                    only.certain_ns.get_or_insert(window.ended_ns);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = b'a';
    const B: u8 = b'b';

    fn at(begun_ns: u64, ended_ns: u64) -> Window {
        Window { begun_ns, ended_ns }
    }

    fn put(row: &mut Versions, id: u64, cells: &[At], begun_ns: u64) {
        let number = row.begin_put(id, cells.to_vec(), begun_ns);
        row.settle_put(number, begun_ns + 5);
    }

    fn delete(row: &mut Versions, kind: DeleteType, (letter, time): At, begun_ns: u64) {
        let number = row.begin_delete(Delete { kind, letter, time }, begun_ns);
        row.settle_delete(number, begun_ns + 5);
    }

    fn shown(cells: &[(At, u64)]) -> Cells {
        cells.iter().copied().collect()
    }

    #[test]
    fn each_kind_of_delete_hides_its_cells() {
        for (kind, left) in [
            (DeleteType::DeleteOneVersion, &[(A, 1), (B, 2), (A, 3)][..]),
            (DeleteType::DeleteMultipleVersions, &[(B, 2), (A, 3)][..]),
            (DeleteType::DeleteFamily, &[(A, 3)][..]),
            (DeleteType::DeleteFamilyVersion, &[(A, 1), (A, 3)][..]),
        ] {
            let mut row = Versions::default();
            for (id, cells) in [(1, &[(A, 1)][..]), (2, &[(A, 2), (B, 2)][..]), (3, &[(A, 3)][..])] {
                put(&mut row, id, cells, 10);
            }
            delete(&mut row, kind, (A, 2), 20);
            let left = shown(&left.iter().map(|at| (*at, at.1)).collect::<Vec<_>>());
            row.check(&left, at(30, 40)).unwrap();
            let all = shown(&[((A, 1), 1), ((A, 2), 2), ((B, 2), 2), ((A, 3), 3)]);
            assert!(row.check(&all, at(30, 40)).unwrap_err().contains("is back"), "{kind:?}");
            row.check(&all, at(16, 22)).unwrap(); // the delete has no answer yet
            assert!(row.check(&Cells::new(), at(30, 40)).unwrap_err().contains("is lost"), "{kind:?}");
        }
    }

    #[test]
    fn half_a_put_is_found_and_what_was_shown_stays() {
        let mut row = Versions::default();
        row.begin_put(1, vec![(A, 5), (B, 5)], 10); // without an answer
        row.check(&Cells::new(), at(20, 30)).unwrap();
        let half = shown(&[((A, 5), 1)]);
        assert_eq!(
            row.check(&half, at(20, 30)).unwrap_err(),
            "put 1 of b at 5 is missing, and other cells of it are there"
        );
        let whole = shown(&[((A, 5), 1), ((B, 5), 1)]);
        row.check(&whole, at(20, 30)).unwrap();
        row.observe(&whole, at(20, 30));
        assert_eq!(row.check(&Cells::new(), at(31, 40)).unwrap_err(), "put 1 of a at 5 is lost");
        // A delete without an answer that a read has shown stays, too.
        row.begin_delete(Delete { kind: DeleteType::DeleteFamily, letter: A, time: 6 }, 50);
        row.check(&whole, at(60, 70)).unwrap();
        row.observe(&Cells::new(), at(60, 70));
        assert!(row.check(&whole, at(71, 80)).unwrap_err().contains("is back"));
        assert!(row.new_time(|_| 0) > 6, "a later put is not hidden");
        assert_eq!(
            row.check(&shown(&[((A, 9), 1)]), at(71, 80)).unwrap_err(),
            "put 1 of a at 9 was never begun"
        );
    }
}
