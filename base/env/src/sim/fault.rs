use std::io;
use std::path::Path;

/// What a fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Open,
    /// Reads of a whole file or at a position.
    Read,
    Write,
    Truncate,
    Sync,
    SyncDir,
    /// The end of a file that was written. Its bytes are there nevertheless.
    Close,
    /// `put_new` and `replace`.
    Put,
    Rename,
    Remove,
    List,
    /// A look at one name of a directory that is listed. Only a fault for this very operation hits it.
    Entry,
    Exists,
    Seal,
    SetStoragePolicy,
    SetErasureCoding,
}

impl Operation {
    /// Whether a full disk refuses it. Not a sync: local file systems take space when bytes are written.
    fn needs_space(self) -> bool {
        matches!(self, Operation::Create | Operation::Write | Operation::Put | Operation::Rename)
    }
}

/// Linux numbers of the two errors that disks are known for.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// An operation that will fail once, or from then on.
#[derive(Clone, Debug)]
pub struct Fault {
    /// `None` for all of them.
    operation: Option<Operation>,
    path_part: String,
    /// Matching operations that are still let through.
    skip: u64,
    forever: bool,
    errno: i32,
    then: Then,
}

/// What happens besides the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// What was asked for is done.
    Done,
    /// What was asked for is done later.
    DoneLater,
}

/// What becomes of a change of names that is not refused.
pub(super) enum Fate {
    Done,
    /// It is done, and this error is the answer.
    AnswerLost(io::Error),
    /// It is not done yet, and this error is the answer.
    Late(io::Error),
}

impl Fault {
    /// The next such operation on a path that contains `path_part` fails with `EIO`. For a rename it is the
    /// old path that counts.
    pub fn new(operation: Operation, path_part: &str) -> Fault {
        Fault {
            operation: Some(operation),
            path_part: path_part.to_string(),
            skip: 0,
            forever: false,
            errno: EIO,
            then: Then::Nothing,
        }
    }

    /// The next rename of a path that contains `path_part` is done, but its answer is lost: its error is in doubt.
    pub fn answer_lost(path_part: &str) -> Fault {
        Fault::new(Operation::Rename, path_part).but_done()
    }

    /// The next operation of whatever kind, on whatever path.
    pub fn any() -> Fault {
        Fault { operation: None, ..Fault::new(Operation::Create, "") }
    }

    /// What was asked for is done, and the error is in doubt. For changes of names; others fail as without it.
    pub fn but_done(self) -> Fault {
        Fault { then: Then::Done, ..self }
    }

    /// As `but_done`, but it is done when [`SimFileSystem::deliver_late`](super::SimFileSystem::deliver_late) is called, if
    /// it can be done then. Only for HDFS.
    pub fn but_done_later(self) -> Fault {
        Fault { then: Then::DoneLater, ..self }
    }

    /// Only the `n`-th such operation fails; 1 is the next.
    pub fn nth(self, n: u64) -> Fault {
        assert!(n > 0, "operations are counted from 1");
        Fault { skip: n - 1, ..self }
    }

    /// Fails with `ENOSPC`: the disk is full. With [`Fault::any`], what needs no space is let through.
    pub fn no_space(self) -> Fault {
        Fault { errno: ENOSPC, ..self }
    }

    /// Every later one fails, too.
    pub fn forever(self) -> Fault {
        Fault { forever: true, ..self }
    }
}

/// What is to happen between two operations of the code under test.
struct Interruption {
    operation: Operation,
    path_part: String,
    action: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    interruptions: Vec<Interruption>,
    /// Operations so far.
    pub(super) count: u64,
    /// Those that a fault made fail.
    pub(super) hit: u64,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    pub(super) fn interrupt(
        &mut self,
        operation: Operation,
        path_part: &str,
        action: Box<dyn FnOnce() + Send>,
    ) {
        self.interruptions.push(Interruption { operation, path_part: path_part.to_string(), action });
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.interruptions.clear();
    }

    fn run_interruptions(&mut self, operation: Operation, path: &Path) {
        let hit = |one: &mut Interruption| {
            one.operation == operation && path.to_string_lossy().contains(&one.path_part)
        };
        for interruption in self.interruptions.extract_if(.., hit) {
            (interruption.action)();
        }
    }

    /// The error of the first fault whose turn it is; every matching fault counts this operation.
    pub(super) fn check(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.fate(operation, path)? {
            Fate::Done => Ok(()),
            Fate::AnswerLost(error) | Fate::Late(error) => Err(error),
        }
    }

    /// The error of a fault for a name in a list. It is no operation of its own, which others would count.
    pub(super) fn check_entry(&mut self, path: &Path) -> io::Result<()> {
        let is_hit = self.waiting.iter().any(|fault| fault.operation == Some(Operation::Entry));
        if is_hit { self.fate_of(Operation::Entry, path).map(drop) } else { Ok(()) }
    }

    /// As `check`, for a change of names.
    pub(super) fn fate(&mut self, operation: Operation, path: &Path) -> io::Result<Fate> {
        self.count += 1;
        self.run_interruptions(operation, path);
        self.fate_of(operation, path)
    }

    fn fate_of(&mut self, operation: Operation, path: &Path) -> io::Result<Fate> {
        if self.waiting.is_empty() {
            return Ok(Fate::Done);
        }
        let text = path.to_string_lossy();
        let mut hit_by = None;
        self.waiting.retain_mut(|fault| {
            let hit = fault.operation.map_or(operation != Operation::Entry, |wanted| wanted == operation);
            if !hit || !text.contains(&fault.path_part) {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            if fault.operation.is_none() && fault.errno == ENOSPC && !operation.needs_space() {
                return fault.forever;
            }
            hit_by.get_or_insert((fault.errno, fault.then));
            fault.forever
        });
        let Some((errno, then)) = hit_by else { return Ok(Fate::Done) };
        self.hit += 1;
        let error = io::Error::from_raw_os_error(errno);
        let error = io::Error::new(error.kind(), format!("{text}: {error}"));
        match then {
            Then::Nothing => Err(error),
            Then::Done => Ok(Fate::AnswerLost(crate::in_doubt(error))),
            Then::DoneLater => Ok(Fate::Late(crate::in_doubt(error))),
        }
    }
}
