//! A row that one client at a time writes to and deletes, at times of its server: which values a read may show.
//!
//! ```text
//! <two digits>s   s:q and v:r   the number of the put that wrote both; a delete takes both away
//! ```
//!
//! Its operations come one after the other: the next one begins when no copy of the last one is on its way any more. So an operation is
//! done before the next one begins, or never. One without an answer leaves two values possible, until a later one has an answer or
//! a read shows which it is. A read never shows an older value again.

/// From when to when a read ran. What was acknowledged before has to be in it, what began behind it is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
}

/// The number of a put; `None`: the row is deleted.
pub(crate) type Value = Option<u64>;

#[derive(Clone, Debug)]
struct State {
    value: Value,
    begun_ns: u64,
    /// Since then no read shows it.
    gone_ns: Option<u64>,
}

/// What the row has been, in the order of its operations.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    states: Vec<State>,
}

impl Default for Register {
    fn default() -> Register {
        Register { states: vec![State { value: None, begun_ns: 0, gone_ns: None }] }
    }
}

impl Register {
    /// An operation begins. Returns its number.
    pub(crate) fn begin(&mut self, value: Value, now_ns: u64) -> usize {
        self.states.push(State { value, begun_ns: now_ns, gone_ns: None });
        self.states.len() - 1
    }

    /// The operation is acknowledged: nothing older is there.
    pub(crate) fn settle(&mut self, number: usize, now_ns: u64) {
        for state in &mut self.states[..number] {
            state.gone_ns.get_or_insert(now_ns);
        }
    }

    /// What the row is, if only one value is possible.
    pub(crate) fn only_value(&self) -> Option<Value> {
        let mut possible = self.states.iter().filter(|state| state.gone_ns.is_none());
        let only = possible.next()?.value;
        possible.all(|state| state.value == only).then_some(only)
    }

    /// The newest value, if it may be there.
    pub(crate) fn newest(&self) -> Value {
        self.states.last().expect("there is a first one").value
    }

    /// Says what is wrong with a read that shows this value.
    pub(crate) fn check(&self, shown: Value, window: Window) -> Result<(), String> {
        if self.of(shown, window).is_some() {
            return Ok(());
        }
        let known = self.states.iter().rev().find(|state| state.value == shown);
        Err(match (shown, known) {
            (Some(id), None) => format!("put {id} was never begun"),
            (Some(id), Some(state)) if state.begun_ns > window.ended_ns => {
                format!("put {id} began behind the read")
            }
            (Some(id), Some(state)) => {
                let next = self.states.iter().find(|it| it.begun_ns > state.begun_ns);
                let what = match next.map(|next| next.value) {
                    Some(Some(next)) => format!("is stale: put {next} was there"),
                    _ => "is back: it was deleted".to_string(),
                };
                format!("put {id} {what}, as was known before the read")
            }
            (None, _) => {
                let was_there = |it: &&State| {
                    it.begun_ns <= window.ended_ns && it.gone_ns.is_none_or(|gone| gone >= window.begun_ns)
                };
                let last = self.states.iter().rev().find(was_there);
                format!("nothing is there, and it has to be {:?}", last.and_then(|last| last.value))
            }
        })
    }

    /// A read has shown this value: nothing older is there.
    pub(crate) fn observe(&mut self, shown: Value, window: Window) {
        if let Some(number) = self.of(shown, window) {
            self.settle(number, window.ended_ns);
        }
    }

    /// The oldest operation that explains the value.
    fn of(&self, shown: Value, window: Window) -> Option<usize> {
        self.states.iter().position(|state| {
            state.value == shown
                && state.begun_ns <= window.ended_ns
                && state.gone_ns.is_none_or(|gone_ns| gone_ns >= window.begun_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begun_ns: u64, ended_ns: u64) -> Window {
        Window { begun_ns, ended_ns }
    }

    /// Put 1 from 10 to 20, deleted from 30 to 40, put 2 from 50 on without an answer.
    fn history() -> Register {
        let mut register = Register::default();
        let put = register.begin(Some(1), 10);
        register.settle(put, 20);
        let delete = register.begin(None, 30);
        register.settle(delete, 40);
        register.begin(Some(2), 50);
        register
    }

    #[test]
    fn a_read_shows_what_was_there_while_it_ran() {
        let register = history();
        for (shown, window) in [
            (None, at(0, 15)),
            (Some(1), at(0, 15)),
            (Some(1), at(15, 35)),
            (None, at(35, 36)),
            (None, at(60, 70)),
            (Some(2), at(60, 70)),
        ] {
            register.check(shown, window).unwrap();
        }
        assert_eq!(register.only_value(), None);
    }

    #[test]
    fn what_is_lost_stale_or_back_is_found() {
        let mut register = history();
        let wrong = |register: &Register, shown, window| register.check(shown, window).unwrap_err();
        assert_eq!(wrong(&register, None, at(21, 25)), "nothing is there, and it has to be Some(1)");
        assert_eq!(
            wrong(&register, Some(1), at(41, 45)),
            "put 1 is back: it was deleted, as was known before the read"
        );
        assert_eq!(wrong(&register, Some(2), at(41, 45)), "put 2 began behind the read");
        assert_eq!(wrong(&register, Some(7), at(41, 45)), "put 7 was never begun");
        // A read has shown what had no answer: it stays.
        register.observe(Some(2), at(60, 70));
        assert_eq!(register.only_value(), Some(Some(2)));
        assert_eq!(wrong(&register, None, at(71, 75)), "nothing is there, and it has to be Some(2)");
        let next = register.begin(Some(3), 80);
        register.settle(next, 90);
        assert_eq!(
            wrong(&register, Some(2), at(91, 95)),
            "put 2 is stale: put 3 was there, as was known before the read"
        );
    }
}
