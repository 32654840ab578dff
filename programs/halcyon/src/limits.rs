//! What the operating system lets one process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes as many open files as the process may have: every connection and every store file is one, and many
/// systems begin with 1,024. Returns the number; `None` if there is no limit.
pub fn take_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the number of open files stays limited");
            limit.current
        }
    }
}
