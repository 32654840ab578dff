//! Work whose failed assertion ends the work, and not the process.
//!
//! An assertion that fails means that the program is wrong, and a process that is wrong is better ended. But where the work is about
//! one region or one procedure, and is done again after each start, the process would end at each start, with all that has
//! nothing to do with it. Such work runs [`contained`]: it changes nothing that others see before it is done, so what it leaves is
//! thrown away, and its caller sets the region or the procedure aside.
//!
//! A simulation is to find such assertions: there nothing is contained.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sim::threads as simulated;

const FAILED: &str = "an assertion failed: ";

thread_local! {
    /// How many pieces of contained work are under way on this thread, inside each other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Carries out `work`. The error is the text of an assertion that has failed in it.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    if simulated::is_simulated() {
        return Ok(work());
    }
    let _entered = Entered::new();
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic))
}

/// Whether the calling thread does contained work: the hook of a panic then leaves the process alone.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

struct Entered;

impl Entered {
    fn new() -> Entered {
        DEPTH.set(DEPTH.get() + 1);
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    match text {
        // Of contained work inside, handed on.
        Some(text) if text.starts_with(FAILED) => text.to_string(),
        text => format!("{FAILED}{}", text.unwrap_or("it says nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_ends_the_work_alone() {
        assert_eq!(contained(|| 1 + 1), Ok(2));
        let limit = 3;
        let failed = contained(|| {
            assert!(is_contained());
            assert!(limit > 5, "{limit} is not over 5");
        });
        assert_eq!(failed, Err("an assertion failed: 3 is not over 5".to_string()));
        assert!(!is_contained());
        let inner = contained(|| contained(|| panic!("inside")).is_err() && is_contained());
        assert_eq!(inner, Ok(true));
    }
}
