//! How long operations take, by table (HBase: `MetricsTableLatencies`).
//!
//! A call's answer carries a tag that says of which table and kind it was ([`OpTable::tag`]). The time comes with it when
//! the answer was given to the socket ([`OpTimes::record`]): nothing is measured that the RPC server does not measure
//! anyway.

use std::sync::Arc;

use halcyon_env::RwLock;
use halcyon_region::{Mutation, MutationKind};
use halcyon_rpc::{CallTimes, CallTimesSnapshot, Tags};
use halcyon_schema::TableName;

use crate::regions::region_table::OnlineRegion;

/// Kinds of operations that are timed, with HBase's words (`MetricsTableLatencies`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    /// A call of a scan.
    Scan,
    Put,
    /// Puts of a Multi for one region.
    PutBatch,
    Delete,
    DeleteBatch,
    Increment,
    Append,
    CheckAndPut,
    CheckAndDelete,
    /// Anything under a condition. When it is read it has the other two too, as in HBase.
    CheckAndMutate,
}

impl Op {
    pub const ALL: [Op; 11] = [
        Op::Get,
        Op::Scan,
        Op::Put,
        Op::PutBatch,
        Op::Delete,
        Op::DeleteBatch,
        Op::Increment,
        Op::Append,
        Op::CheckAndPut,
        Op::CheckAndDelete,
        Op::CheckAndMutate,
    ];
}

/// The times of a table's operations, by kind.
type Times = [CallTimes; Op::ALL.len()];

/// What a region keeps to tag the answers to its calls.
#[derive(Debug)]
pub(crate) struct OpTable {
    table: TableName,
    /// Its place among the tables of the server.
    number: u32,
    times: Times,
}

const OP_BITS: u32 = 8;
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

impl OpTable {
    /// The tag of so many operations. It is never 0.
    pub(crate) fn tag(&self, op: Op, count: usize) -> u64 {
        let count = (count as u64).clamp(1, COUNT_MAX);
        u64::from(self.number) << (OP_BITS + COUNT_BITS) | count << OP_BITS | op as u64
    }
}

/// Tags of the operations of one call.
#[derive(Default)]
pub(crate) struct OpTags(Vec<u64>);

impl OpTags {
    pub(crate) fn add(&mut self, online: &OnlineRegion, op: Op) {
        let tag = online.ops.tag(op, 1);
        let one = 1 << OP_BITS;
        match self.0.last_mut() {
            Some(last) if (*last ^ tag) & !(COUNT_MAX << OP_BITS) == 0 && tagged(*last).2 < COUNT_MAX => {
                *last += one
            }
            _ => self.0.push(tag),
        }
    }

    /// Mutations of one region that were done together. One batch may count as two (HBase: `RSRpcServices.doBatchOp`).
    pub(crate) fn add_batch(&mut self, online: &OnlineRegion, batch: &[Mutation]) {
        let has = |kind| batch.iter().any(|mutation| mutation.kind == kind);
        if has(MutationKind::Put) {
            self.add(online, Op::PutBatch);
        }
        if has(MutationKind::Delete) {
            self.add(online, Op::DeleteBatch);
        }
    }

    pub(crate) fn append(&mut self, mut other: OpTags) {
        self.0.append(&mut other.0);
    }
}

impl From<OpTags> for Tags {
    fn from(OpTags(tags): OpTags) -> Tags {
        match tags[..] {
            [] => Tags::None,
            [tag] => Tags::One(tag),
            _ => Tags::Many(tags.into()),
        }
    }
}

/// Number of the table, kind and number of operations.
fn tagged(tag: u64) -> (usize, usize, u64) {
    let op = (tag & ((1 << OP_BITS) - 1)) as usize;
    ((tag >> (OP_BITS + COUNT_BITS)) as usize, op, (tag >> OP_BITS) & COUNT_MAX)
}

/// The times of one kind of operation on one table.
pub struct TableTimes {
    pub table: TableName,
    pub op: Op,
    pub times: CallTimesSnapshot,
}

/// See the head of the file. *Thread safety*: [`OpTimes::record`] holds a read lock for as long as it takes to add two
/// numbers.
#[derive(Default)]
pub(crate) struct OpTimes(RwLock<Tables>);

#[derive(Default)]
struct Tables {
    /// A place that nobody else refers to has no open region any more and may be taken by another table. The calls of
    /// the old one that are being answered then count as that one's.
    tables: Vec<Arc<OpTable>>,
    /// Of tables that have lost their place.
    others: Times,
}

impl OpTimes {
    /// The times of a table of which a region opens.
    pub(crate) fn of(&self, table: &TableName) -> Arc<OpTable> {
        let mut state = self.0.write();
        if let Some(known) = state.tables.iter().find(|known| known.table == *table) {
            return known.clone();
        }
        let free = state.tables.iter().position(|known| Arc::strong_count(known) == 1);
        let place = free.unwrap_or(state.tables.len());
        let number = u32::try_from(place).expect("there are fewer tables than regions, and those fit");
        let new = Arc::new(OpTable { table: table.clone(), number, times: Times::default() });
        match free {
            Some(place) => {
                let old = std::mem::replace(&mut state.tables[place], new.clone());
                for (sum, times) in state.others.iter().zip(&old.times) {
                    sum.add(times);
                }
            }
            None => state.tables.push(new.clone()),
        }
        new
    }

    /// Calls with these tags were answered, each after `took_ns`. The operations of one call share its time equally.
    pub(crate) fn record(&self, tags: &Tags, took_ns: u64, calls: u64) {
        let tags = tags.as_slice();
        if tags.is_empty() {
            return;
        }
        let ops: u64 = tags.iter().map(|tag| tagged(*tag).2).sum();
        let state = self.0.read();
        for tag in tags {
            let (number, op, count) = tagged(*tag);
            if let Some(table) = state.tables.get(number) {
                table.times[op].record(took_ns / ops.max(1), count * calls);
            }
        }
    }

    /// The operations on tables that have open regions, by table. Kinds that never occurred are left out.
    pub(crate) fn by_table(&self) -> Vec<TableTimes> {
        let state = self.0.read();
        let open = state.tables.iter().filter(|table| Arc::strong_count(table) > 1);
        let times = open.flat_map(|table| {
            Op::ALL.into_iter().map(|op| {
                let sum = CallTimes::default();
                add_kind(&sum, &table.times, op);
                TableTimes { table: table.table.clone(), op, times: sum.snapshot() }
            })
        });
        times.filter(|it| it.times.count > 0).collect()
    }

    /// All operations of one kind since the start.
    pub(crate) fn of_all_tables(&self, op: Op) -> CallTimesSnapshot {
        let state = self.0.read();
        let sum = CallTimes::default();
        add_kind(&sum, &state.others, op);
        for table in &state.tables {
            add_kind(&sum, &table.times, op);
        }
        sum.snapshot()
    }
}

fn add_kind(sum: &CallTimes, times: &Times, op: Op) {
    sum.add(&times[op as usize]);
    if op == Op::CheckAndMutate {
        sum.add(&times[Op::CheckAndPut as usize]);
        sum.add(&times[Op::CheckAndDelete as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).expect("a name")
    }

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (at, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, at);
        }
    }

    #[test]
    fn operations_share_the_time_of_their_call() {
        let times = OpTimes::default();
        let (a, b) = (times.of(&table("a")), times.of(&table("b")));
        times.record(&Tags::One(a.tag(Op::Get, 1)), 1_000_000, 3);
        times.record(&Tags::Many([a.tag(Op::Get, 3), b.tag(Op::PutBatch, 1)].into()), 4_000_000, 1);
        times.record(&Tags::None, 9, 9);
        let seen: Vec<_> = times.by_table();
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (it.table.to_string(), it.op, it.times.count, it.times.sum_seconds))
            .collect();
        assert_eq!(seen, [("a".into(), Op::Get, 6, 0.006), ("b".into(), Op::PutBatch, 1, 0.001)]);
        assert_eq!(times.of_all_tables(Op::Get).count, 6);
    }

    #[test]
    fn a_table_without_regions_gives_its_place_away_and_still_counts() {
        let times = OpTimes::default();
        let (a, _b) = (times.of(&table("a")), times.of(&table("b")));
        assert!(Arc::ptr_eq(&a, &times.of(&table("a"))), "regions of a table share it");
        times.record(&Tags::One(a.tag(Op::Delete, 1)), 1_000_000, 5);
        drop(a);
        assert!(times.by_table().is_empty(), "it has no open region");
        let c = times.of(&table("c"));
        assert_eq!(c.number, 0);
        times.record(&Tags::One(c.tag(Op::Delete, 1)), 1_000_000, 1);
        assert_eq!(times.by_table()[0].times.count, 1);
        assert_eq!(times.of_all_tables(Op::Delete).count, 6, "a sum never falls");
    }

    #[test]
    fn all_that_is_conditional_counts_as_such_too() {
        let times = OpTimes::default();
        let table = times.of(&table("a"));
        for op in [Op::CheckAndPut, Op::CheckAndDelete, Op::CheckAndMutate] {
            times.record(&Tags::One(table.tag(op, 1)), 1, 1);
        }
        let counts: Vec<_> = times.by_table().iter().map(|it| (it.op, it.times.count)).collect();
        assert_eq!(counts, [(Op::CheckAndPut, 1), (Op::CheckAndDelete, 1), (Op::CheckAndMutate, 3)]);
    }

    #[test]
    fn a_tag_of_no_table_is_passed_over() {
        let times = OpTimes::default();
        times.record(&Tags::One(u64::MAX >> 8 << 8), 1, 1);
        assert!(times.by_table().is_empty());
    }
}
