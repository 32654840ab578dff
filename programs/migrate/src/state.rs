//! What a migration remembers between runs: one JSON file, replaced as a whole.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_env::Env;
use halcyon_schema::TableName;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::Way;
use crate::search::UNDER_WAY_MS;

/// How far a migration is. Each phase can be begun again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Both sides were checked; settings and tables are being made.
    Preparing,
    /// Edits wait at the source for their peer; ranges are being copied.
    Copying,
    /// All ranges are copied; the peer gets the edits that have waited.
    Following,
    /// Every row was compared, and the target follows.
    Ready,
    /// The source is being closed for writes.
    CuttingOver,
    /// The target takes the writes, and the source follows.
    CutOver,
    /// The target is being closed for writes.
    GoingBack,
    /// The source takes the writes again, and the target follows. As [`Phase::Ready`].
    Back,
    /// Peers are being removed, and settings put back.
    Ending,
    /// Nothing of the migration is left but the tables.
    Ended,
}

impl Phase {
    /// For a person.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Phase::Preparing => "tables and peers are being made",
            Phase::Copying => "rows are being copied",
            Phase::Following => "the target follows the source; not all rows are compared",
            Phase::Ready => "ready to cut over: every row was compared, and the target follows the source",
            Phase::CuttingOver => "a cut over has begun: the source may refuse writes",
            Phase::CutOver => "the target takes the writes, and the source follows",
            Phase::GoingBack => "a cut over back has begun: the target may refuse writes",
            Phase::Back => "the source takes the writes again, and the target follows",
            Phase::Ending => "peers are being removed",
            Phase::Ended => "ended",
        }
    }
}

/// Whether the side that clients have left takes edits again after a cut over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OldSide {
    /// It may be READONLY, and clients may not have been told.
    #[default]
    Closed,
    /// It was opened when clients had been told.
    Opened,
    /// It was opened for the way back, although clients may not have been told.
    OpenedToReturn,
}

/// A range of rows to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// First row; empty: the table's first.
    #[serde(with = "hex")]
    pub(crate) start: Bytes,
    /// First row behind it; empty: the table's end.
    #[serde(with = "hex")]
    pub(crate) end: Bytes,
    /// Rows before this one are at the target; those from it on may be.
    #[serde(with = "hex")]
    pub(crate) next: Bytes,
    pub(crate) is_done: bool,
}

impl Range {
    pub(crate) fn new(start: Bytes, end: Bytes) -> Range {
        Range { next: start.clone(), start, end, is_done: false }
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RowOf {
    /// Place of the table in [`State::tables`].
    pub(crate) table: usize,
    #[serde(with = "hex")]
    pub(crate) row: Bytes,
}

/// Which rows stay at the side that follows, if only that side has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    All,
    /// Those whose cells are all older than this time.
    Before(i64),
}

impl Kept {
    /// `newest_ms`: the latest timestamp of the row.
    pub(crate) fn has(self, newest_ms: i64) -> bool {
        match self {
            Kept::Nothing => false,
            Kept::All => true,
            Kept::Before(time_ms) => newest_ms < time_ms,
        }
    }
}

/// `REPLICATION_SCOPE` of a family before the migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scope {
    pub(crate) family: String,
    pub(crate) scope: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableOfState {
    pub(crate) name: String,
    /// Of the source before the migration.
    pub(crate) source_scopes: Vec<Scope>,
    /// Of the target before the migration; `None`: the migration makes the table there.
    pub(crate) target_scopes: Option<Vec<Scope>>,
    pub(crate) ranges: Vec<Range>,
}

impl TableOfState {
    pub(crate) fn table(&self) -> TableName {
        TableName::parse(self.name.as_bytes()).expect("it was parsed before it was written")
    }
}

/// See the head of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) format: u32,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) from_cluster_key: String,
    pub(crate) to_cluster_key: String,
    pub(crate) phase: Phase,
    pub(crate) tables: Vec<TableOfState>,
    /// Cells that only the target has stay there.
    pub(crate) keeps_surplus: bool,
    /// Peers that each side had before the migration.
    pub(crate) source_peers: Vec<String>,
    pub(crate) target_peers: Vec<String>,
    /// Cells and their bytes that were copied so far.
    pub(crate) copied_cells: u64,
    pub(crate) copied_bytes: u64,
    /// Rows that were written from this time on, by the clock of the side that takes writes, are to be compared (again).
    pub(crate) compared_ms: i64,
    /// Rows that changed as often as they were compared.
    pub(crate) unsettled: Vec<RowOf>,
    /// Rows with cells that only the side that follows has, although nothing changes them.
    pub(crate) surplus: Vec<RowOf>,
    /// What the last comparison of all rows has seen; `None`: there was none that still counts.
    pub(crate) walk: Option<Walk>,
    /// The last write of a pause in which there was no time to search for changed rows, by the clock of the old side. `None`:
    /// there is nothing to search for.
    pub(crate) unsearched_ms: Option<i64>,
    /// From when on rows are to be searched for then: [`State::compared_ms`] may be later. `None`: the file is of a program that did
    /// not note it.
    #[serde(default)]
    pub(crate) unsearched_since_ms: Option<i64>,
    /// Of the last cut over. It counts in [`Phase::CutOver`] and [`Phase::Back`].
    #[serde(default)]
    pub(crate) old_side: OldSide,
}

impl State {
    /// Notes what a pause leaves to be searched for. If that of the cut over before it was not searched for, which went the other way,
    /// rows may be at one side only that no timestamp shows any more: all are compared before the next one.
    ///
    /// Rows that comparisons before it have left were compared in the pause. Those that the lists have from now on are of the other way.
    pub(crate) fn note_pause(&mut self, unsearched_ms: Option<i64>) {
        if self.unsearched_ms.is_some() {
            self.walk = None;
        }
        self.unsettled.clear();
        self.surplus.clear();
        self.unsearched_ms = unsearched_ms;
        self.unsearched_since_ms = unsearched_ms.map(|_| self.compared_ms);
    }

    pub(crate) fn note_searched(&mut self) {
        (self.unsearched_ms, self.unsearched_since_ms) = (None, None);
    }

    /// The last write of the pause of the last cut over, if that went this way and rows are still to be searched for.
    pub(crate) fn unsearched(&self, way: Way) -> Option<i64> {
        let last = match self.phase {
            Phase::CutOver | Phase::GoingBack => Way::Forth,
            Phase::Back => Way::Back,
            Phase::CuttingOver if self.before_cut_over() == Phase::Back => Way::Back,
            _ => return None,
        };
        self.unsearched_ms.filter(|_| last == way)
    }

    /// From when on rows are to be searched for behind a pause.
    pub(crate) fn search_since_ms(&self) -> i64 {
        self.unsearched_since_ms.unwrap_or(self.compared_ms)
    }

    /// Rows that a comparison leaves at the side that follows. With `--merge` the target has rows of its own. Behind a cut over back that
    /// was not searched, clients may also have written rows there that the source never got. These have cells of the time that is to be
    /// searched.
    pub(crate) fn kept(&self, way: Way) -> Kept {
        match (way, self.keeps_surplus, self.unsearched(way.opposite())) {
            (Way::Back, _, _) | (_, false, _) => Kept::Nothing,
            (Way::Forth, true, None) => Kept::All,
            (Way::Forth, true, Some(_)) => Kept::Before(self.search_since_ms().saturating_sub(UNDER_WAY_MS)),
        }
    }

    /// Begins a phase. With a cut over the side that clients leave is closed.
    fn enter(&mut self, phase: Phase) {
        let before = std::mem::replace(&mut self.phase, phase);
        if matches!((before, phase), (Phase::CuttingOver, Phase::CutOver) | (Phase::GoingBack, Phase::Back)) {
            self.old_side = OldSide::Closed;
        }
    }

    /// What ends the last cut over, and what goes the other way; `None`: there was none.
    fn ways(&self) -> Option<(&'static str, &'static str)> {
        match self.phase {
            Phase::CutOver => Some(("--cut-over", "--back")),
            Phase::Back => Some(("--back", "--cut-over")),
            _ => None,
        }
    }

    /// What a run does with the side that clients have left, before anything else. `ends`: it is to end the cut over; `returns`: it
    /// is to go the other way. `None`: nothing. The error says what is to be done first: clients may still write to that side, if it is
    /// opened, and are told of the other one later.
    pub(crate) fn opens(&self, ends: bool, returns: bool) -> Result<Option<OldSide>, String> {
        let Some((end, back)) = self.ways() else { return Ok(None) };
        match self.old_side {
            OldSide::Opened => Ok((!ends).then_some(OldSide::Opened)),
            OldSide::Closed if ends => Ok(None),
            _ if returns => Ok(Some(OldSide::OpenedToReturn)),
            OldSide::Closed => {
                Err(format!("{end} was not done to its end: run it again, or {back}. Nothing was changed"))
            }
            OldSide::OpenedToReturn => {
                let (left, used) = match self.phase {
                    Phase::Back => ("target", "source"),
                    _ => ("source", "target"),
                };
                Err(format!(
                    "{back} was begun when {end} was not done to its end, and has opened the {left}: clients may write to it, and \
                     to the {used}. Run {back} again, until it is done to its end; no other step is possible before. Nothing was \
                     changed"
                ))
            }
        }
    }

    /// What a person has to know besides the phase; `None`: nothing.
    pub(crate) fn unended(&self) -> Option<String> {
        match (self.ways(), self.opens(false, false)) {
            (Some((end, _)), Ok(_)) => self.unsearched_ms.map(|_| {
                format!(
                    "rows that changed last before {end} were not all compared: run it again, or --verify"
                )
            }),
            (_, Ok(_)) => None,
            (_, Err(why)) => Some(why.trim_end_matches(". Nothing was changed").to_string()),
        }
    }

    /// The phase in which a cut over leaves the migration that is undone: the one in which it began.
    pub(crate) fn before_cut_over(&self) -> Phase {
        match (self.phase, self.old_side) {
            // Behind a cut over back the side that clients had left was opened, by its end or by this cut over.
            (Phase::CuttingOver, OldSide::Opened | OldSide::OpenedToReturn) => Phase::Back,
            (Phase::CuttingOver, OldSide::Closed) => Phase::Ready,
            _ => Phase::CutOver,
        }
    }

    /// Fails if a cut over was not done to its end: peers of the migration are still needed.
    pub(crate) fn check_complete(&self) -> Result<(), String> {
        let Some((end, _)) = self.ways() else { return Ok(()) };
        self.opens(false, false)?;
        match self.unsearched_ms {
            None => Ok(()),
            Some(_) => Err(format!(
                "rows that changed last before {end} were not all compared: run it again, or --verify. Nothing was changed"
            )),
        }
    }
}

/// The end of a comparison of all rows. What differs later than that may have changed rows without a timestamp that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Walk {
    /// When it ended, by the clock of the machine that ran it, in milliseconds since 1970.
    pub(crate) ended_ms: i64,
    /// Of each table at both sides: its regions, and when it was enabled (`checks.rs`).
    pub(crate) layouts: Vec<String>,
    /// Region servers of both sides.
    pub(crate) servers: Vec<String>,
}

/// The form of the file.
pub(crate) const FORMAT: u32 = 2;

/// The file, locked for this process.
pub(crate) struct StateFile {
    env: Env,
    path: PathBuf,
    _lock: Box<dyn halcyon_env::FileLock>,
}

impl StateFile {
    /// Locks the file. The error is a sentence for the user.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<StateFile, String> {
        let lock_path = path.with_extension("lock");
        let lock = env.local.lock(&lock_path);
        let lock = lock.map_err(|error| {
            format!("another run may have this migration: cannot lock {}: {error}", lock_path.display())
        })?;
        Ok(StateFile { env: env.clone(), path: path.to_path_buf(), _lock: lock })
    }

    /// What the last run has left; `None` if there was none.
    pub(crate) fn load(&self) -> Result<Option<State>, String> {
        let path = self.path.display();
        let exists = self.env.local.exists(&self.path).map_err(|error| format!("{path}: {error}"))?;
        if !exists {
            return Ok(None);
        }
        let bytes = self.env.local.read(&self.path).map_err(|error| format!("{path}: {error}"))?;
        let state: State = serde_json::from_slice(&bytes).map_err(|error| {
            format!("{path} is no state of a migration ({error}): name another one by --state")
        })?;
        if state.format != FORMAT {
            return Err(format!("{path} has format {}; this program knows {FORMAT}", state.format));
        }
        Ok(Some(state))
    }

    pub(crate) fn save(&self, state: &State) -> Result<(), String> {
        let mut text = serde_json::to_vec_pretty(state).expect("it has no maps with other keys than text");
        text.push(b'\n');
        let saved = self.env.local.replace(&self.path, &text);
        saved.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Notes that a phase has begun. See [`StateFile::change`].
    pub(crate) fn enter(&self, state: &Mutex<State>, phase: Phase) -> Result<(), String> {
        self.change(state, |state| state.enter(phase))
    }

    /// Notes that a pause has ended, and what it has left to be searched for. See [`StateFile::change`].
    pub(crate) fn enter_cut_over(
        &self,
        state: &Mutex<State>,
        phase: Phase,
        unsearched_ms: Option<i64>,
    ) -> Result<(), String> {
        self.change(state, |state| {
            state.note_pause(unsearched_ms);
            state.enter(phase);
        })
    }

    /// Changes the state to another phase. If that cannot be saved the state stays as it was, and so does the file: it is written once
    /// more, since an error may come after the file has got its new text.
    fn change(&self, state: &Mutex<State>, change: impl FnOnce(&mut State)) -> Result<(), String> {
        let (before, next) = {
            let mut state = state.lock();
            let before = state.clone();
            change(&mut state);
            (before, state.clone())
        };
        self.save(&next).map_err(|why| {
            *state.lock() = before.clone();
            match self.save(&before) {
                Ok(()) => why,
                Err(more) => {
                    let phase = serde_json::to_string(&before.phase).expect("a phase is a word");
                    format!(
                        "{why}. The file may say that {}, which is not so: when it can be written again ({more}), put the phase \
                         {phase} there",
                        next.phase.text()
                    )
                }
            }
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Row keys as text.
mod hex {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes = (0..text.len()).step_by(2).map(digit).collect::<Option<Vec<u8>>>();
        bytes.map(Bytes::from).ok_or_else(|| D::Error::custom(format!("'{text}' is no row key")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    use super::*;

    fn state() -> State {
        let row = Bytes::from_static(b"a\xff\x00");
        State {
            format: FORMAT,
            from: "hbase://a:2181/hbase".to_string(),
            to: "hbase://b:2181/hbase".to_string(),
            from_cluster_key: "a:2181:/hbase".to_string(),
            to_cluster_key: "b:2181:/hbase".to_string(),
            phase: Phase::Copying,
            tables: vec![TableOfState {
                name: "n:t".to_string(),
                source_scopes: vec![Scope { family: "f".to_string(), scope: 0 }],
                target_scopes: None,
                ranges: vec![Range::new(Bytes::new(), row.clone())],
            }],
            keeps_surplus: false,
            source_peers: vec!["dr".to_string()],
            target_peers: Vec::new(),
            copied_cells: 7,
            copied_bytes: 70,
            compared_ms: -1,
            unsettled: vec![RowOf { table: 0, row: row.clone() }],
            surplus: vec![RowOf { table: 0, row }],
            walk: Some(Walk { ended_ms: 5, layouts: vec!["x".to_string()], servers: Vec::new() }),
            unsearched_ms: Some(8),
            unsearched_since_ms: Some(7),
            old_side: OldSide::OpenedToReturn,
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let dir = std::env::temp_dir().join(format!("halcyon-migrate-{}", std::process::id()));
        let env = Env::real();
        env.local.create_dir_all(&dir).unwrap();
        let path = dir.join("m.json");
        let file = StateFile::open(&env, &path).unwrap();
        assert!(file.load().unwrap().is_none());
        assert!(StateFile::open(&env, &path).is_err_and(|error| error.contains("another run")));
        file.save(&state()).unwrap();
        let read = file.load().unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", state()));
        file.save(&State { format: 9, ..state() }).unwrap();
        assert!(file.load().unwrap_err().contains("format 9"));
        env.local.replace(&path, b"{}").unwrap();
        assert!(file.load().unwrap_err().contains("--state"));
        env.local.remove_dir_all(&dir).unwrap();
    }

    /// A run was killed when it had noted the cut over. One with `--verify`, or without a step, opened the source, though clients
    /// did not know of the target; `--finish` ended the migration, and rows that changed last were not searched for.
    #[test]
    fn a_cut_over_that_was_not_done_to_its_end_is_ended_first() {
        let of = |phase, old_side| State { phase, old_side, unsearched_ms: None, ..state() };
        for (phase, end, back) in
            [(Phase::CutOver, "--cut-over", "--back"), (Phase::Back, "--back", "--cut-over")]
        {
            let left = of(phase, OldSide::Closed);
            for refused in [left.opens(false, false).map(|_| ()), left.check_complete()] {
                let why = refused.unwrap_err();
                assert!(why.starts_with(&format!("{end} was not done")) && why.contains(back), "{why}");
            }
            assert_eq!(left.opens(true, false), Ok(None), "when clients are told");
            assert_eq!(left.opens(false, true), Ok(Some(OldSide::OpenedToReturn)));
            let returning = of(phase, OldSide::OpenedToReturn);
            assert_eq!(returning.opens(false, true), Ok(Some(OldSide::OpenedToReturn)));
            let returns = [returning.opens(true, false), returning.opens(false, false)];
            for refused in
                returns.map(|opened| opened.map(|_| ())).into_iter().chain([returning.check_complete()])
            {
                let why = refused.unwrap_err();
                assert!(why.starts_with(&format!("{back} was begun")), "{why}");
                assert!(
                    why.contains(&format!("Run {back} again")) && why.contains("Nothing was changed"),
                    "{why}"
                );
                let opened = if phase == Phase::Back { "opened the target" } else { "opened the source" };
                assert!(why.contains(opened), "{why}");
            }
            let told = returning.unended().unwrap();
            assert!(told.contains(&format!("Run {back} again")) && !told.contains("Nothing was"), "{told}");
            assert!(left.unended().unwrap().starts_with(&format!("{end} was not done")));
            let done = of(phase, OldSide::Opened);
            assert_eq!(done.opens(true, false), Ok(None));
            assert_eq!(done.opens(false, false), Ok(Some(OldSide::Opened)));
            assert_eq!(done.check_complete(), Ok(()));
            let unsearched = State { unsearched_ms: Some(8), ..done };
            assert!(unsearched.check_complete().unwrap_err().contains("--verify"));
            assert!(unsearched.unended().unwrap().contains("--verify"));
        }
        for phase in [Phase::Copying, Phase::Ready, Phase::CuttingOver, Phase::Ending] {
            let other = of(phase, OldSide::Closed);
            assert_eq!(other.opens(false, false), Ok(None), "{phase:?}");
            assert_eq!((other.check_complete(), other.unended()), (Ok(()), None), "{phase:?}");
        }
    }

    /// `--back` was not done to its end, so clients may not have been told of the source. `--cut-over` opened the target for them and was
    /// undone: then the source was said to take the writes, and `--finish` ended the migration while clients wrote to the target.
    #[test]
    fn a_cut_over_that_is_undone_leaves_the_phase_before_it() {
        for (before, old_side, cutting, after) in [
            (Phase::Ready, OldSide::Closed, Phase::CuttingOver, Phase::Ready),
            (Phase::Back, OldSide::OpenedToReturn, Phase::CuttingOver, Phase::Back),
            (Phase::Back, OldSide::Opened, Phase::CuttingOver, Phase::Back),
            (Phase::CutOver, OldSide::Opened, Phase::GoingBack, Phase::CutOver),
            (Phase::CutOver, OldSide::OpenedToReturn, Phase::GoingBack, Phase::CutOver),
        ] {
            let cutting = State { phase: cutting, old_side, unsearched_ms: None, ..state() };
            assert_eq!(cutting.before_cut_over(), after, "from {before:?} with {old_side:?}");
            let undone = State { phase: cutting.before_cut_over(), ..cutting };
            let must_go_on = old_side == OldSide::OpenedToReturn;
            assert_eq!(undone.check_complete().is_err(), must_go_on, "from {before:?} with {old_side:?}");
        }
    }

    /// A file of a program that did not note it says nothing of it: the cut over is ended once more, which may be done twice.
    #[test]
    fn a_cut_over_closes_the_side_that_clients_leave() {
        let disk = SimFileSystem::new();
        let fs = SimFileSystem::hdfs(1);
        fs.create_dir_all("/m".as_ref()).unwrap();
        let env = Env { local: Arc::new(fs.clone()), ..disk.env() };
        let _lock = disk.lock("/m.lock".as_ref()).unwrap();
        let file = StateFile { env, path: "/m/m.json".into(), _lock };
        let at = |phase, old_side| Mutex::new(State { phase, old_side, ..state() });
        let saved = || file.load().unwrap().unwrap().old_side;
        for (before, next, kept) in [
            (Phase::CuttingOver, Phase::CutOver, false),
            (Phase::GoingBack, Phase::Back, false),
            (Phase::GoingBack, Phase::CutOver, true), // it was undone
            (Phase::CutOver, Phase::GoingBack, true),
        ] {
            let state = at(before, OldSide::Opened);
            file.enter(&state, next).unwrap();
            let expected = if kept { OldSide::Opened } else { OldSide::Closed };
            assert_eq!((state.lock().old_side, saved()), (expected, expected), "{before:?} to {next:?}");
        }
        let state = at(Phase::GoingBack, OldSide::Opened);
        fs.inject(Fault::new(Operation::Put, "m.json").but_done());
        file.enter(&state, Phase::Back).unwrap_err();
        assert_eq!((state.lock().old_side, saved()), (OldSide::Opened, OldSide::Opened));
        let text = String::from_utf8(fs.read("/m/m.json".as_ref()).unwrap().to_vec()).unwrap();
        let older = text.replace(",\n  \"old_side\": \"opened\"", "");
        assert_ne!(older, text);
        fs.replace("/m/m.json".as_ref(), older.as_bytes()).unwrap();
        assert_eq!(saved(), OldSide::Closed);
    }

    /// `--back` forgot that rows were not searched for at the cut over before it, which could follow again within the hour: nothing
    /// looked for them then. And one that could not be noted left the note of its own pause in the file.
    #[test]
    fn rows_that_were_not_searched_for_are_not_forgotten_by_the_way_back() {
        let disk = SimFileSystem::new();
        let fs = SimFileSystem::hdfs(1);
        fs.create_dir_all("/m".as_ref()).unwrap();
        let env = Env { local: Arc::new(fs.clone()), ..disk.env() };
        let _lock = disk.lock("/m.lock".as_ref()).unwrap();
        let file = StateFile { env, path: "/m/m.json".into(), _lock };
        let noted = |state: &State| (state.phase, state.unsearched_ms, state.search_since_ms());
        let walk = state().walk;
        let first = State { phase: Phase::CuttingOver, compared_ms: 50, unsearched_ms: None, ..state() };
        let state = Mutex::new(State { old_side: OldSide::Closed, ..first });
        file.enter_cut_over(&state, Phase::CutOver, Some(60)).unwrap();
        assert_eq!(noted(&state.lock()), (Phase::CutOver, Some(60), 50));
        assert_eq!(state.lock().unsearched(Way::Forth), Some(60));
        assert_eq!(state.lock().unsearched(Way::Back), None);
        let left = state.lock().clone();
        assert_eq!(
            (left.unsettled, left.surplus),
            (Vec::new(), Vec::new()),
            "those of the other way are compared"
        );
        // A comparison on the way back is later.
        state.lock().compared_ms = 70;
        file.enter(&state, Phase::GoingBack).unwrap();
        assert_eq!(state.lock().unsearched(Way::Forth), Some(60));
        fs.inject(Fault::new(Operation::Put, "m.json").but_done());
        file.enter_cut_over(&state, Phase::Back, None).unwrap_err();
        for left in [state.lock().clone(), file.load().unwrap().unwrap()] {
            assert_eq!((noted(&left), left.walk), ((Phase::GoingBack, Some(60), 50), walk.clone()));
        }
        file.enter_cut_over(&state, Phase::Back, None).unwrap();
        let left = file.load().unwrap().unwrap();
        assert_eq!((noted(&left), left.walk), ((Phase::Back, None, 70), None), "all rows are compared next");
        // What was searched for needs no comparison.
        let searched = Mutex::new(State { phase: Phase::GoingBack, walk: walk.clone(), ..left });
        file.enter_cut_over(&searched, Phase::Back, Some(80)).unwrap();
        assert_eq!(searched.lock().walk, walk);
        assert_eq!(searched.lock().unsearched(Way::Back), Some(80));
        searched.lock().old_side = OldSide::Opened;
        file.enter(&searched, Phase::CuttingOver).unwrap();
        assert_eq!(searched.lock().unsearched(Way::Back), Some(80), "until it is over");
        searched.lock().old_side = OldSide::Closed;
        assert_eq!(searched.lock().unsearched(Way::Back), None, "there was none before it");
        searched.lock().note_searched();
        assert_eq!(noted(&searched.lock()), (Phase::CuttingOver, None, 70));
    }

    /// Rows that clients had written at a target of `--merge`, and that the source had never got, counted as rows of the target's own.
    #[test]
    fn rows_to_be_searched_for_are_not_those_of_the_target_alone() {
        let kept = |phase, unsearched_ms, way| {
            let merged = State { phase, unsearched_ms, keeps_surplus: true, ..state() };
            State { unsearched_since_ms: Some(10_000), ..merged }.kept(way)
        };
        for (phase, unsearched_ms, way, expected) in [
            (Phase::Ready, None, Way::Forth, Kept::All),
            (Phase::CutOver, Some(20_000), Way::Back, Kept::Nothing),
            (Phase::Back, None, Way::Forth, Kept::All),
            (Phase::Back, Some(20_000), Way::Forth, Kept::Before(8_000)),
            (Phase::CuttingOver, Some(20_000), Way::Forth, Kept::Before(8_000)),
        ] {
            assert_eq!(kept(phase, unsearched_ms, way), expected, "{phase:?} {unsearched_ms:?}");
        }
        let unmerged = State { phase: Phase::Back, ..state() };
        assert_eq!(unmerged.kept(Way::Forth), Kept::Nothing);
    }

    /// The directory could not be synced after the file had its new text. Its "cut over" stayed, so that `--abort` was refused although
    /// the source took the writes again.
    #[test]
    fn a_phase_that_was_saved_with_an_error_is_taken_back() {
        // This one can do what it answers with an error; the lock is elsewhere.
        let (fs, disk) = (SimFileSystem::hdfs(1), SimFileSystem::new());
        fs.create_dir_all("/m".as_ref()).unwrap();
        let env = Env { local: Arc::new(fs.clone()), ..disk.env() };
        let _lock = disk.lock("/m.lock".as_ref()).unwrap();
        let file = StateFile { env, path: "/m/m.json".into(), _lock };
        let state = Mutex::new(State { phase: Phase::CuttingOver, ..state() });
        file.save(&state.lock().clone()).unwrap();
        fs.inject(Fault::new(Operation::Put, "m.json").but_done());
        file.enter(&state, Phase::CutOver).unwrap_err();
        assert_eq!(fs.faults_hit(), 1);
        assert_eq!(state.lock().phase, Phase::CuttingOver);
        assert_eq!(file.load().unwrap().unwrap().phase, Phase::CuttingOver);
        fs.inject(Fault::new(Operation::Put, "m.json").but_done().forever());
        let why = file.enter(&state, Phase::CutOver).unwrap_err();
        assert!(why.contains(Phase::CutOver.text()) && why.contains("\"cutting-over\""), "{why}");
    }

    /// A cut over that could not be saved was one for the rest of the run, which left the tables closed for writes.
    #[test]
    fn a_phase_that_cannot_be_saved_has_not_begun() {
        let dir = std::env::temp_dir().join(format!("halcyon-migrate-phase-{}", std::process::id()));
        let env = Env::real();
        env.local.create_dir_all(&dir).unwrap();
        let file = StateFile::open(&env, &dir.join("m.json")).unwrap();
        let state = Mutex::new(State { phase: Phase::CuttingOver, ..state() });
        env.local.remove_dir_all(&dir).unwrap();
        assert!(file.enter(&state, Phase::CutOver).unwrap_err().contains("m.json"));
        assert_eq!(state.lock().phase, Phase::CuttingOver);
        env.local.create_dir_all(&dir).unwrap();
        file.enter(&state, Phase::Ready).unwrap();
        assert_eq!(file.load().unwrap().unwrap().phase, Phase::Ready);
        env.local.remove_dir_all(&dir).unwrap();
    }
}
