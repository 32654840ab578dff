//! In which order the actions of a region action are done that stand alone.
//!
//! Puts and deletes are done in batches, which share log entries. A get sees what the call has written to its row before it, and
//! nothing that the call writes to it later. It needs no more than that, so a batch goes on over gets of other rows, and a get
//! whose row was written waits with others of its kind: one wait for the log serves them all. Before that, a batch of puts and
//! gets in turn had one wait for each get.
//!
//! ```text
//! put a   get a   put b   get x   put c   get b        actions
//! put a, put b, put c                                   one batch; get a and get x are put off
//!                         get b                         put off, as b was written
//! one wait, then get a, get x, get b
//! ```

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use halcyon_proto::pb;

use super::multi::is_put_or_delete;

/// What is known of the actions that were done or put off. Nothing is kept of a region action without gets.
#[derive(Default)]
pub(super) struct Order {
    /// Rows written by actions before `looked_at` that a get may not see yet.
    written: HashSet<Bytes>,
    /// Some of them have written a row that they do not name.
    has_unnamed: bool,
    looked_at: usize,
    /// Gets that were put off, and their rows.
    deferred: VecDeque<usize>,
    deferred_rows: HashSet<Bytes>,
    /// One of them has to wait until what was written can be read.
    must_wait: bool,
}

impl Order {
    /// Whether the get `at` has to wait for what an action before it has written.
    pub(super) fn depends(&mut self, actions: &[pb::Action], at: usize, row: &Bytes) -> bool {
        for action in &actions[self.looked_at.min(at)..at] {
            let Some(mutation) = &action.mutation else { continue };
            match row_of(mutation) {
                Some(row) => drop(self.written.insert(row.clone())),
                None => self.has_unnamed = true,
            }
        }
        self.looked_at = self.looked_at.max(at);
        self.has_unnamed || self.written.contains(row)
    }

    /// Puts the get `at` off.
    pub(super) fn defer(&mut self, actions: &[pb::Action], at: usize, row: &Bytes) {
        self.must_wait |= self.depends(actions, at, row);
        self.deferred.push_back(at);
        self.deferred_rows.insert(row.clone());
    }

    /// Whether a get that was put off must not see what this mutation writes.
    pub(super) fn comes_behind_get(&self, mutation: &pb::MutationProto) -> bool {
        !self.deferred.is_empty() && row_of(mutation).is_none_or(|row| self.deferred_rows.contains(row))
    }

    /// Where the batch of puts and deletes ends that begins at `from`. The gets in it can be put off.
    pub(super) fn batch_end(&self, actions: &[pb::Action], from: usize) -> usize {
        if self.deferred.is_empty() {
            // Without a get there is nothing to compare with: most batches have none.
            let writes = actions[from..].iter().take_while(|action| action.get.is_none() && is_write(action));
            let end = from + writes.count();
            if actions.get(end).is_none_or(|action| action.get.is_none()) {
                return end;
            }
        }
        let (mut end, mut rows_of_gets) = (from, HashSet::new());
        for (at, action) in actions.iter().enumerate().skip(from) {
            if let Some(get) = &action.get {
                rows_of_gets.insert(&get.row);
                continue;
            }
            let Some(mutation) = action.mutation.as_deref().filter(|it| is_put_or_delete(it)) else { break };
            let is_read = |row| rows_of_gets.contains(row);
            let is_behind = !rows_of_gets.is_empty() && row_of(mutation).is_none_or(is_read);
            if is_behind || (at > from && self.comes_behind_get(mutation)) {
                break;
            }
            end = at + 1;
        }
        end
    }

    /// The gets that were put off, in order.
    pub(super) fn into_deferred(self) -> VecDeque<usize> {
        self.deferred
    }

    /// The first of the gets that were put off.
    pub(super) fn first_deferred(&self) -> Option<usize> {
        self.deferred.front().copied()
    }

    /// Whether what was written has to be readable before the gets that were put off are done.
    pub(super) fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// What was written by the actions before `at` can be read.
    pub(super) fn note_seen(&mut self, at: usize) {
        self.written.clear();
        (self.has_unnamed, self.must_wait) = (false, false);
        self.looked_at = self.looked_at.max(at);
    }

    /// The first of the gets that were put off is done.
    pub(super) fn note_first_done(&mut self) {
        self.deferred.pop_front();
        if self.deferred.is_empty() {
            self.deferred_rows.clear();
            self.must_wait = false;
        }
    }
}

fn is_write(action: &pb::Action) -> bool {
    action.mutation.as_deref().is_some_and(is_put_or_delete)
}

/// The row, if the mutation names it besides its cells.
fn row_of(mutation: &pb::MutationProto) -> Option<&Bytes> {
    mutation.row.as_ref().filter(|row| !row.is_empty())
}

#[cfg(test)]
mod tests {
    use pb::mutation_proto::MutationType;

    use super::*;

    fn get(row: &str) -> pb::Action {
        let get = pb::Get { row: Bytes::copy_from_slice(row.as_bytes()), ..Default::default() };
        pb::Action { get: Some(Box::new(get)), ..Default::default() }
    }

    fn write(mutate_type: MutationType, row: &str) -> pb::Action {
        let row = Some(Bytes::copy_from_slice(row.as_bytes()));
        let mutation = pb::MutationProto { row, mutate_type: Some(mutate_type as i32), ..Default::default() };
        pb::Action { mutation: Some(Box::new(mutation)), ..Default::default() }
    }

    fn put(row: &str) -> pb::Action {
        write(MutationType::Put, row)
    }

    #[test]
    fn a_batch_goes_on_over_gets_of_other_rows() {
        let order = Order::default();
        let ends = |actions: &[pb::Action]| order.batch_end(actions, 0);
        assert_eq!(ends(&[put("a"), get("a"), put("b"), get("x"), put("c"), get("b")]), 5);
        assert_eq!(ends(&[put("a"), get("a"), put("a")]), 1, "the get must not see the second one");
        assert_eq!(ends(&[put("a"), get("b"), put("a"), put("b"), put("c")]), 3);
        assert_eq!(ends(&[put("a"), write(MutationType::Increment, "b"), put("c")]), 1);
        assert_eq!(ends(&[put("a"), get("b"), put("")]), 1, "it may be of row b");
        assert_eq!(ends(&[put("a"), put(""), put("c")]), 3);
    }

    #[test]
    fn a_get_depends_on_what_was_written_to_its_row() {
        let actions =
            [put("a"), get("b"), get("a"), write(MutationType::Append, "b"), get("b"), put(""), get("z")];
        let mut order = Order::default();
        let row = |at: usize| actions[at].get.as_ref().unwrap().row.clone();
        assert!(!order.depends(&actions, 1, &row(1)));
        assert!(order.depends(&actions, 2, &row(2)));
        order.defer(&actions, 2, &row(2));
        assert!(order.must_wait() && order.comes_behind_get(put("a").mutation.as_ref().unwrap()));
        assert!(!order.comes_behind_get(actions[3].mutation.as_ref().unwrap()));
        order.note_seen(3);
        order.note_first_done();
        assert!(!order.must_wait() && order.first_deferred().is_none());
        assert!(!order.depends(&actions, 3, &row(2)) && order.depends(&actions, 4, &row(4)));
        assert!(order.depends(&actions, 6, &row(6)), "nobody knows which row was written");
    }

    /// The gets behind the first one were moved up each time one was done: a call of some megabytes took its thread for hours.
    #[test]
    #[allow(clippy::disallowed_methods)] // the clock of the test itself
    fn many_gets_that_were_put_off_cost_no_more_than_others() {
        let count = 200_000;
        let actions: Vec<pb::Action> =
            std::iter::once(put("a")).chain((0..count).map(|_| get("a"))).collect();
        let (mut order, row) = (Order::default(), Bytes::from_static(b"a"));
        (1..=count).for_each(|at| order.defer(&actions, at, &row));
        let begun = std::time::Instant::now();
        for at in 1..=count {
            assert_eq!(order.first_deferred(), Some(at));
            order.note_first_done();
        }
        assert_eq!(order.first_deferred(), None);
        assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
