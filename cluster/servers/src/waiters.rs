//! Callers that wait for one region server, and the reports that end their waiting.
//!
//! | report | ends |
//! |---|---|
//! | `OPENED` | the opening of that region, unless the report repeats one that was answered before. The caller announces the region; then the report is answered. Where a close of the region waits instead, the report is refused |
//! | `FAILED_OPEN` | the opening of that number |
//! | `CLOSED` | the close of that number. A close of another number asks the server |
//! | `ReportProcedureDone` | the procedure of that number |
//! | death of the server | all, with an error |
//!
//! A report may be late, repeated or of an order that an earlier master gave. `CLOSED` counts by its number only: a repeated
//! one of an earlier close would give a region away that is open again. A repeated `OPENED` of an earlier opening would announce a
//! region that its server has closed since. A server closes no region whose `OPENED` has no answer, so a close that waits and a report
//! that is to come again would wait for each other.

use std::collections::{HashMap, HashSet, VecDeque};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::Mutex;
use halcyon_schema::ServerName;
use tokio::sync::oneshot;

use crate::channel::{Receiver, Sender, channel};
use crate::errors::{self, Failure};

/// Numbers of openings that have ended, which reports may repeat.
const ENDED_MAX: usize = 4_096;
/// Reports that may wait for one announcement.
const ANSWERS_MAX: usize = 64;
/// HBase's number for "no procedure".
const NO_PROCEDURE: i64 = -1;

/// What a caller is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// A region is open and waits to be announced.
    Opened(u64),
    /// Closed, or the end of a procedure.
    Done,
    /// Another order for the region has ended: the server has to be asked.
    Ask,
    Failed(Failure),
    /// The server is dead.
    Ended,
}

/// How an announcement ended. An error is told to the server, which closes the region.
pub(crate) type Verdict = std::result::Result<(), String>;

/// What becomes of a report that a region is open.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It was announced before; the report is a repetition.
    Known,
    /// The caller announces it now.
    Announcing(oneshot::Receiver<Verdict>),
    /// Too many reports of it.
    Later,
    /// It was answered before, and another opening waits. A server that still waits for this answer has to close the region.
    Superseded,
    /// No opening waits, and a close does. The server has to close the region.
    Closing,
    /// It is not waited for.
    Unasked,
}

/// The callers that wait for one server. *Thread safety*: all methods from any thread; none blocks.
pub(crate) struct Waiters {
    server: ServerName,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_ended: bool,
    /// By encoded name.
    openings: HashMap<String, Opening>,
    /// By number.
    closings: HashMap<i64, Closing>,
    runs: HashMap<i64, Sender<Told>>,
    /// Open sequence numbers of regions that were announced, and are not being closed.
    announced: HashMap<String, u64>,
    ended: HashSet<i64>,
    ended_order: VecDeque<i64>,
}

struct Opening {
    procedure: i64,
    caller: Sender<Told>,
    /// Being announced, with this open sequence number.
    open_seq_num: Option<u64>,
    reports: Vec<oneshot::Sender<Verdict>>,
    /// The numbers in those reports.
    reported_by: Vec<i64>,
}

struct Closing {
    encoded_name: String,
    caller: Sender<Told>,
    /// The server has taken the order. What it says of the region before that may change: an earlier order to open it may still be on
    /// its way.
    is_taken: bool,
    /// The caller was told to ask, and has not asked yet.
    is_told_to_ask: bool,
}

impl Waiters {
    pub(crate) fn new(server: ServerName) -> Waiters {
        Waiters { server, state: Mutex::default() }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn wait_for_opening(&self, encoded_name: &str, procedure: i64) -> Result<Receiver<Told>> {
        let (caller, receiver) = channel();
        let mut state = self.alive()?;
        if state.openings.contains_key(encoded_name) {
            let text = format!("{encoded_name} is being opened at {} already", self.server);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        state.check_unused(procedure);
        state.announced.remove(encoded_name);
        let opening =
            Opening { procedure, caller, open_seq_num: None, reports: Vec::new(), reported_by: Vec::new() };
        let before = state.openings.insert(encoded_name.to_string(), opening);
        assert!(
            before.is_none(),
            "one caller opens {encoded_name} at a time: a report would end the wrong one"
        );
        Ok(receiver)
    }

    pub(crate) fn wait_for_close(&self, encoded_name: &str, procedure: i64) -> Result<Receiver<Told>> {
        let (caller, receiver) = channel();
        let mut state = self.alive()?;
        state.check_unused(procedure);
        state.announced.remove(encoded_name);
        let (is_taken, is_told_to_ask) = (false, false);
        let closing = Closing { encoded_name: encoded_name.to_string(), caller, is_taken, is_told_to_ask };
        state.closings.insert(procedure, closing);
        Ok(receiver)
    }

    pub(crate) fn wait_for_run(&self, procedure: i64) -> Result<Receiver<Told>> {
        let (caller, receiver) = channel();
        let mut state = self.alive()?;
        state.check_unused(procedure);
        state.runs.insert(procedure, caller);
        Ok(receiver)
    }

    fn alive(&self) -> Result<halcyon_env::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_ended { Err(errors::not_online(&self.server)) } else { Ok(state) }
    }

    /// Whether an order still has a caller.
    pub(crate) fn is_waiting(&self, procedure: i64) -> bool {
        let state = self.state.lock();
        state.closings.contains_key(&procedure)
            || state.runs.contains_key(&procedure)
            || state.openings.values().any(|opening| opening.procedure == procedure)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }

    /// The caller of an opening has waited long enough. False if the region is open by now, which it is told.
    pub(crate) fn give_up_opening(&self, encoded_name: &str, procedure: i64) -> bool {
        let mut state = self.state.lock();
        match state.openings.get(encoded_name) {
            Some(opening) if opening.procedure == procedure && opening.open_seq_num.is_some() => {
                return false;
            }
            Some(opening) if opening.procedure == procedure => drop(state.openings.remove(encoded_name)),
            _ => {}
        }
        true
    }

    /// The caller of an opening is gone, however it ended.
    pub(crate) fn abandon_opening(&self, encoded_name: &str, procedure: i64) {
        let mut state = self.state.lock();
        if state.openings.get(encoded_name).is_some_and(|opening| opening.procedure == procedure) {
            state.openings.remove(encoded_name);
        }
    }

    /// The caller of a close or of a procedure waits no longer.
    pub(crate) fn give_up(&self, procedure: i64) {
        let mut state = self.state.lock();
        state.closings.remove(&procedure);
        state.runs.remove(&procedure);
    }

    /// The server has taken an order.
    pub(crate) fn taken(&self, procedure: i64) {
        if let Some(closing) = self.state.lock().closings.get_mut(&procedure) {
            closing.is_taken = true;
        }
    }

    /// The caller of a close asks the server from here on. False if the server does not have the order yet.
    pub(crate) fn asks(&self, procedure: i64) -> bool {
        let mut state = self.state.lock();
        let Some(closing) = state.closings.get_mut(&procedure) else { return false };
        closing.is_told_to_ask = false;
        closing.is_taken
    }

    /// Ends an opening: its reports are answered. False if the server has died meanwhile.
    pub(crate) fn announced(&self, encoded_name: &str, open_seq_num: u64, verdict: &Verdict) -> bool {
        let mut state = self.state.lock();
        if state.is_ended {
            return false;
        }
        if let Some(opening) = state.openings.remove(encoded_name) {
            assert_eq!(
                opening.open_seq_num,
                Some(open_seq_num),
                "{encoded_name} was announced with another number than its server has reported"
            );
            assert!(!opening.reports.is_empty(), "a report of {encoded_name} had it announced");
            state.note_ended(opening.procedure);
            opening.reported_by.iter().for_each(|procedure| state.note_ended(*procedure));
            if verdict.is_ok() {
                state.announced.insert(encoded_name.to_string(), open_seq_num);
            }
            for report in opening.reports {
                let _ = report.send(verdict.clone());
            }
        }
        true
    }

    /// A region is open, by the order of that number.
    pub(crate) fn opened(&self, encoded_name: &str, procedure: i64, open_seq_num: u64) -> Opened {
        let mut state = self.state.lock();
        if state.announced.get(encoded_name) == Some(&open_seq_num) {
            return Opened::Known;
        }
        let state = &mut *state;
        let Some(opening) = state.openings.get_mut(encoded_name) else {
            if !state.closings.values().any(|closing| closing.encoded_name == encoded_name) {
                return Opened::Unasked;
            }
            state.note_ended(procedure); // a later opening is not ended by a repetition
            return Opened::Closing;
        };
        if opening.procedure != procedure && state.ended.contains(&procedure) {
            return Opened::Superseded;
        }
        let is_first = opening.open_seq_num.is_none();
        if !is_first && (opening.open_seq_num != Some(open_seq_num) || opening.reports.len() >= ANSWERS_MAX) {
            return Opened::Later;
        }
        opening.open_seq_num = Some(open_seq_num);
        if !opening.reported_by.contains(&procedure) {
            opening.reported_by.push(procedure);
        }
        let (report, answer) = oneshot::channel();
        opening.reports.push(report);
        assert!(
            is_first == (opening.reports.len() == 1) && opening.reports.len() <= ANSWERS_MAX,
            "the first report of an opening has it announced, and so many others wait with it"
        );
        assert!(
            opening.reported_by.len() <= opening.reports.len(),
            "each number of {encoded_name} came with a report, and ends with its answer"
        );
        if is_first && opening.caller.send(Told::Opened(open_seq_num)).is_err() {
            state.openings.remove(encoded_name);
            return Opened::Later;
        }
        Opened::Announcing(answer)
    }

    /// The report of an opening that was not waited for has its answer.
    pub(crate) fn answered(&self, procedure: i64) {
        self.state.lock().note_ended(procedure);
    }

    /// A region cannot be opened. False if no opening ends by it: a server that fails with the order of an earlier master goes on to that
    /// of this one.
    pub(crate) fn failed_open(&self, encoded_name: &str, procedure: i64) -> bool {
        let mut state = self.state.lock();
        let is_of_order = |opening: &Opening| opening.procedure == procedure || procedure == NO_PROCEDURE;
        let fails = |opening: &Opening| is_of_order(opening) && opening.open_seq_num.is_none();
        if !state.openings.get(encoded_name).is_some_and(fails) {
            return false;
        }
        let error = format!("{} cannot open {encoded_name} (FAILED_OPEN)", self.server);
        let opening = state.openings.remove(encoded_name).expect("it was there");
        state.note_ended(opening.procedure);
        let _ = opening.caller.send(Told::Failed(Error::new(ErrorKind::Moved, error).into()));
        true
    }

    /// A region is closed. False if it was not waited for.
    pub(crate) fn closed(&self, encoded_name: &str, procedure: i64) -> bool {
        let mut state = self.state.lock();
        let is_of_region =
            state.closings.get(&procedure).is_some_and(|closing| closing.encoded_name == encoded_name);
        if is_of_region && let Some(closing) = state.closings.remove(&procedure) {
            state.announced.remove(encoded_name);
            let _ = closing.caller.send(Told::Done);
            return true;
        }
        let mut is_waited_for = false;
        for closing in state.closings.values_mut().filter(|closing| closing.encoded_name == encoded_name) {
            is_waited_for = true;
            if !std::mem::replace(&mut closing.is_told_to_ask, true) {
                let _ = closing.caller.send(Told::Ask);
            }
        }
        is_waited_for
    }

    /// A procedure has ended. False if it is not of this server.
    pub(crate) fn done(
        &self,
        procedure: i64,
        result: impl FnOnce() -> std::result::Result<(), Failure>,
    ) -> bool {
        let Some(caller) = self.state.lock().runs.remove(&procedure) else { return false };
        let told = result().map_or_else(Told::Failed, |()| Told::Done);
        let _ = caller.send(told);
        true
    }

    /// The server refuses an order.
    pub(crate) fn refused(&self, procedure: i64, error: &Error) {
        let mut state = self.state.lock();
        let mut callers = Vec::new();
        callers.extend(state.runs.remove(&procedure));
        callers.extend(state.closings.remove(&procedure).map(|closing| closing.caller));
        let is_of_order =
            |opening: &mut Opening| opening.procedure == procedure && opening.open_seq_num.is_none();
        let openings = state.openings.extract_if(|_, opening| is_of_order(opening));
        callers.extend(openings.map(|(_, opening)| opening.caller));
        for caller in callers {
            let _ = caller.send(Told::Failed(error.clone().into()));
        }
    }

    /// The server is dead: all callers are told so, and no more are taken.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        assert!(state.ended.len() <= ENDED_MAX, "what is remembered of a server has a limit");
        let openings = std::mem::take(&mut state.openings).into_values().map(|opening| opening.caller);
        let closings = std::mem::take(&mut state.closings).into_values().map(|closing| closing.caller);
        let runs = std::mem::take(&mut state.runs).into_values();
        for caller in openings.chain(closings).chain(runs) {
            let _ = caller.send(Told::Ended);
        }
    }

    /// Orders that have a caller.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let state = self.state.lock();
        state.openings.len() + state.closings.len() + state.runs.len()
    }
}

impl State {
    /// Each order has a number of its own: an answer would end the waiting for another.
    fn check_unused(&self, procedure: i64) {
        assert!(!self.is_ended, "nobody waits for a dead server: there is no report to end that");
        let is_used = self.closings.contains_key(&procedure)
            || self.runs.contains_key(&procedure)
            || self.openings.values().any(|opening| opening.procedure == procedure);
        assert!(!is_used, "the number {procedure} was given to two orders");
    }

    fn note_ended(&mut self, procedure: i64) {
        if procedure == NO_PROCEDURE || !self.ended.insert(procedure) {
            return;
        }
        self.ended_order.push_back(procedure);
        if self.ended_order.len() > ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        assert_eq!(
            self.ended.len(),
            self.ended_order.len(),
            "each number that has ended is forgotten in its turn"
        );
    }
}
