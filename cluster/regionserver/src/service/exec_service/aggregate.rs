//! `AggregateService`: maximum, minimum, sum and the like of the cells that a scan finds in one region. Clients put the answers
//! of regions together.
//!
//! What an answer holds (`AggregateImplementation` of 2.6.4):
//!
//! | method | `first_part` | `second_part` |
//! |---|---|---|
//! | `GetMax`, `GetMin` | the value | |
//! | `GetSum` | the sum | |
//! | `GetRowNum` | number of rows, 8 bytes | |
//! | `GetAvg` | the sum | number of rounds, 8 bytes |
//! | `GetStd` | sum of the rows' sums; sum of their squares | number of rounds, 8 bytes |
//! | `GetMedian` | sum of the values; sum of the weights, or the least value of the interpreter | |
//!
//! Without a value there are no parts. An interpreter looks at every cell
//! that the scan finds, whatever its column. With two qualifiers, values and weights of a median are therefore added to both
//! sums, as by HBase. `GetRowNum` leaves out the first qualifier. A round is a row, or a batch of one; the last round counts also if the filter has left nothing of it.
//!
//! A client that can take partial results (`client_supports_partial_result`) gets one after half of its time, with the row
//! at which its next call begins. HBase sends partial results only where a quota stops a scan. Its next row skips rows that
//! begin like the last one; here it is the one behind. `GetMedian` and reversed scans have no partial results: clients keep
//! one part of a median for each region.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_region::Scan;

use super::cents::Cents;
use super::interpreter::{BIG_DECIMAL, DOUBLE, LONG, Value};
use super::rows::RowScan;
use super::{Answer, CallError, EndpointCall, decode};
use crate::convert;
use crate::errors::invalid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Max,
    Min,
    Sum,
    RowNum,
    Avg,
    Std,
    Median,
}

impl Method {
    fn of(name: &str) -> Option<Method> {
        Some(match name {
            "GetMax" => Method::Max,
            "GetMin" => Method::Min,
            "GetSum" => Method::Sum,
            "GetRowNum" => Method::RowNum,
            "GetAvg" => Method::Avg,
            "GetStd" => Method::Std,
            "GetMedian" => Method::Median,
            _ => return None,
        })
    }
}

pub(super) fn run(call: &EndpointCall) -> Result<Answer, CallError> {
    let method = Method::of(&call.method).ok_or_else(|| call.unknown_method())?;
    let request: pb::AggregateRequest = decode(&call.method, call.request.clone())?;
    // HBase does not look at the interpreter where it counts rows.
    let response = match &request.interpreter_class_name[..] {
        _ if method == Method::RowNum => scan::<i64>(call, &request, method)?,
        LONG => initialized(&request).and_then(|()| scan::<i64>(call, &request, method))?,
        DOUBLE => initialized(&request).and_then(|()| scan::<f64>(call, &request, method))?,
        BIG_DECIMAL => initialized(&request).and_then(|()| scan::<Cents>(call, &request, method))?,
        class => {
            let class = class.escape_debug();
            let message = format!(
                "java.lang.ClassNotFoundException: {class}; the column interpreters here are {LONG}, {DOUBLE} and \
                 {BIG_DECIMAL}"
            );
            return Err(invalid(message).into());
        }
    };
    Ok(Answer::new("hbase.pb.AggregateResponse", &response))
}

/// The interpreters begin with an empty message.
fn initialized(request: &pb::AggregateRequest) -> Result<(), CallError> {
    match &request.interpreter_specific_bytes {
        Some(bytes) => Ok(decode::<pb::EmptyMsg>("the interpreter", bytes.clone()).map(|_| ())?),
        None => Ok(()),
    }
}

fn scan<V: Value>(
    call: &EndpointCall,
    request: &pb::AggregateRequest,
    method: Method,
) -> Result<pb::AggregateResponse, CallError> {
    let scan = convert::scan(&request.scan)?;
    let qualifiers = scan.families.values().next().and_then(Option::as_ref);
    let qualifiers_count = qualifiers.map_or(0, BTreeSet::len);
    let scan = if method == Method::RowNum { row_scan(request, scan)? } else { scan };
    let may_stop = request.client_supports_partial_result() && method != Method::Median && !scan.reversed;
    let stop_ns = may_stop.then(|| stop_ns(call));
    let mut totals = Totals::<V>::new(method, qualifiers_count > 1);
    let mut rows = RowScan::open(call, scan)?;
    loop {
        let piece = rows.next()?;
        if piece.ended_before {
            totals.end_round();
        }
        for at in 0..rows.cells.len() {
            totals.add(V::of(rows.cells.get(at))?);
        }
        for _ in 0..u8::from(piece.ends) + u8::from(piece.empty_follows) {
            totals.end_round();
        }
        if !piece.more {
            return Ok(totals.response());
        }
        let is_late = || stop_ns.is_some_and(|stop| call.server.env.clock.monotonic_ns() >= stop);
        if piece.between_rows && is_late() {
            let next_row = Bytes::from([rows.last_row(), &[0]].concat());
            return Ok(pb::AggregateResponse { next_chunk_start_row: Some(next_row), ..totals.response() });
        }
    }
}

/// The scan that counts rows. HBase takes the first qualifier of the first family out of the scan before it begins: with one
/// qualifier, rows with any cell of the family count. Without a qualifier, one cell of a row is enough.
fn row_scan(request: &pb::AggregateRequest, mut scan: Scan) -> Result<Scan, CallError> {
    let first_family = scan.families.values_mut().next();
    let has_qualifier = match first_family {
        Some(family) => {
            let first = family.as_mut().and_then(BTreeSet::pop_first);
            if family.as_ref().is_some_and(BTreeSet::is_empty) {
                *family = None;
            }
            first.is_some()
        }
        None => false,
    };
    if scan.filter.is_some() || has_qualifier {
        return Ok(scan);
    }
    convert::scan(&convert::first_keys_only(&request.scan))
}

/// When a client that can take a partial result gets one: after half of the time that it waits.
fn stop_ns(call: &EndpointCall) -> u64 {
    let now_ns = call.server.env.clock.monotonic_ns();
    let left = Duration::from_nanos(call.terms.deadline_ns.saturating_sub(now_ns));
    let patience = left.min(call.server.settings.rpc_timeout);
    now_ns.saturating_add((patience / 2).as_nanos() as u64)
}

/// What was found so far.
struct Totals<V> {
    method: Method,
    /// The second of two or more qualifiers is that of the weights.
    has_weights: bool,
    /// The largest or smallest value, or the sum.
    value: Option<V>,
    squares: Option<V>,
    weights: Option<V>,
    /// Of the round that has not ended.
    of_round: Option<V>,
    has_cells: bool,
    rounds_count: i64,
    rows_count: i64,
}

impl<V: Value> Totals<V> {
    fn new(method: Method, has_weights: bool) -> Totals<V> {
        Totals {
            method,
            has_weights,
            value: None,
            squares: None,
            weights: None,
            of_round: None,
            has_cells: false,
            rounds_count: 0,
            rows_count: 0,
        }
    }

    /// Adds the value of a cell.
    fn add(&mut self, value: Option<V>) {
        self.has_cells = true;
        let Some(value) = value else { return };
        match self.method {
            Method::RowNum => {}
            Method::Max => keep(&mut self.value, value, Ordering::Greater),
            Method::Min => keep(&mut self.value, value, Ordering::Less),
            Method::Sum | Method::Avg => add(&mut self.value, &value),
            Method::Std | Method::Median => add(&mut self.of_round, &value),
        }
    }

    fn end_round(&mut self) {
        self.rounds_count += 1;
        self.rows_count += i64::from(std::mem::take(&mut self.has_cells));
        let Some(of_round) = self.of_round.take() else { return };
        add(&mut self.value, &of_round);
        if self.method == Method::Std {
            add(&mut self.squares, &of_round.times(&of_round));
        } else if self.has_weights {
            add(&mut self.weights, &of_round);
        }
    }

    fn response(&self) -> pb::AggregateResponse {
        if self.method == Method::RowNum {
            return parts([number(self.rows_count)], None);
        }
        let Some(value) = self.value.as_ref().map(V::to_message) else {
            return pb::AggregateResponse::default();
        };
        match self.method {
            Method::Avg => parts([value], Some(number(self.rounds_count))),
            Method::Std => {
                let squares = self.squares.as_ref().expect("every sum of a row was squared").to_message();
                parts([value, squares], Some(number(self.rounds_count)))
            }
            Method::Median => {
                let weights = self.weights.as_ref().map_or_else(V::least_encoded, V::to_message);
                parts([value, weights], None)
            }
            Method::Max | Method::Min | Method::Sum | Method::RowNum => parts([value], None),
        }
    }
}

fn add<V: Value>(sum: &mut Option<V>, value: &V) {
    *sum = Some(match sum.as_ref() {
        Some(sum) => sum.plus(value),
        None => value.clone(),
    });
}

fn keep<V: Value>(best: &mut Option<V>, value: V, wanted: Ordering) {
    if best.as_ref().is_none_or(|best| value.compare(best) == wanted) {
        *best = Some(value);
    }
}

fn number(number: i64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn parts<const N: usize>(first: [Bytes; N], second: Option<Bytes>) -> pb::AggregateResponse {
    pb::AggregateResponse { first_part: first.into(), second_part: second, ..Default::default() }
}
