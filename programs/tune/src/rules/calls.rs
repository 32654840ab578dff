//! Handlers, queues and the calls that clients make.

use super::Verdict;
use crate::numbers::ServerNumbers;
use crate::readings::Reading::*;

/// Part of the looks at which all handlers were busy and calls waited.
const FULL_SHARE_MAX: f64 = 0.5;
/// Calls for one row, per second, from which on round trips are worth a thought.
const SINGLE_CALLS_PER_SECOND_MIN: f64 = 1000.0;
const SINGLE_SHARE_MAX: f64 = 0.9;

pub fn handlers_full(server: &ServerNumbers, _: f64) -> Verdict {
    let looks = &server.looks;
    let (Some(busy), Some(most), Some(queued)) =
        (looks.mean(HandlersBusy), looks.last(HandlersMax), looks.mean(CallsQueued))
    else {
        return Verdict::not_measured("the server does not tell busy handlers and queued calls");
    };
    let is_full = |look: &crate::readings::Readings| {
        let of = |reading| look.get(&reading).copied().unwrap_or(0.0);
        of(HandlersBusy) >= most && of(CallsQueued) > 0.0
    };
    let full = looks.share(is_full).unwrap_or(0.0);
    let measured = format!(
        "all {most:.0} handlers were busy and calls waited at {:.0} % of the looks; on average {busy:.1} were busy and \
         {queued:.1} calls waited",
        full * 100.0
    );
    let change = "more handlers (hbase.regionserver.handler.count) if processors and disks are idle; else fewer or larger \
                  calls, or another server";
    Verdict::of(full > FULL_SHARE_MAX, measured, change)
}

pub fn calls_refused(server: &ServerNumbers, seconds: f64) -> Verdict {
    let Some(refused) = server.looks.grown(CallsRefused) else {
        return Verdict::not_measured("the server does not tell refused calls");
    };
    let measured = format!("{refused:.0} calls were refused in {seconds:.0} s because a queue was full");
    let change = "clients that send less at a time (hbase.client.max.perserver.tasks), longer queues \
                  (hbase.ipc.server.max.callqueue.length), or another server";
    Verdict::of(refused > 0.0, measured, change)
}

/// A batch pays for one round trip and one WAL sync, whatever its number of rows.
pub fn small_calls(server: &ServerNumbers, seconds: f64) -> Verdict {
    let (Some(single), Some(batches)) = (server.looks.grown(SingleCalls), server.looks.grown(BatchCalls))
    else {
        return Verdict::not_measured("the server does not tell calls by kind");
    };
    let (per_second, share) = (single / seconds.max(1.0), single / (single + batches).max(1.0));
    let measured = format!(
        "{per_second:.0} calls per second were for a single row, {:.0} % of all gets and writes; {batches:.0} were batches",
        share * 100.0
    );
    let is_bad = per_second >= SINGLE_CALLS_PER_SECOND_MIN && share > SINGLE_SHARE_MAX;
    let change = "clients that write through BufferedMutator and read with lists of gets, where they need no answer for \
                  each row at once";
    Verdict::of(is_bad, measured, change)
}
