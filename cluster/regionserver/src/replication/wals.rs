//! The WALs whose edits a source sends: all of them where the server is alone, those of its own, or those of a server that is gone.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_env::{Env, Mutex};
use halcyon_proto::pb;
use halcyon_schema::{ClusterUuid, layout};
use halcyon_wal::{WalReader, repeated_len};

use super::filter::{PeerFilter, load_of};
use super::queue::{Queue, Reached};
use super::serial::SerialChecker;
use crate::RegionServerSettings;
use crate::regions::resources::RegionResources;

/// So much is read of WALs without a look at whether the source is to stop.
const READ_BYTES_MAX: u64 = 64 << 20;

/// What the master adds to the name of the directory of a dead server whose WALs are split.
const SPLITTING: &str = "-splitting";

/// Whose WALs a source sends to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// All: there is no other server.
    All,
    /// Those of the server itself, which is one of several.
    Own,
    /// Those of a server that is gone, and whose queue was claimed. All of them are archived.
    Gone(String),
}

/// When the WAL was begun, of its name; `None` if it is no WAL of tables.
pub(super) fn begin_of(name: &str) -> Option<u64> {
    name.rsplit_once('.').and_then(|(_, number)| number.parse().ok())
}

/// The WALs of one moment.
pub(super) struct Wals {
    resources: Arc<RegionResources>,
    /// Oldest first.
    files: Vec<File>,
    /// The WAL that was written then; `None` if none of the files is being written.
    current: Option<String>,
    whose: Whose,
    reading: Mutex<Option<Reading>>,
    /// WALs that begin with entries of another one, and how many bytes those take.
    repeated: Mutex<HashMap<String, u64>>,
}

/// A compressed WAL as it was left by the last call. Its entries need those before them, so without it each call would read all of
/// them again.
struct Reading {
    name: String,
    reader: WalReader,
}

struct File {
    name: String,
    env: Env,
    path: PathBuf,
    /// It is not archived. A log that went on in another file may have left it open, and in HDFS it is empty for readers until it
    /// is sealed.
    may_be_open: bool,
}

impl File {
    fn server(&self) -> &str {
        server_of(&self.name)
    }
}

/// The server whose WAL it is, as names of WALs have it.
pub(super) fn server_of(wal: &str) -> &str {
    wal.rsplit_once('.').map_or("", |(server, _)| server)
}

/// What is sent in one call.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<pb::WalEntry>,
    pub(super) cells: Vec<Cell>,
    pub(super) bytes: usize,
    /// How far the peer is when it has the batch.
    pub(super) reached: Reached,
    /// Entries that were read, also those that the peer does not get.
    pub(super) read_count: u64,
    /// When the last entry was written that was read.
    pub(super) write_time_ms: u64,
    /// WALs that were not finished when the batch was begun.
    pub(super) queued_count: usize,
    /// Nothing is left to read for now.
    pub(super) is_at_end: bool,
    /// What comes next waits for what other servers send.
    pub(super) is_waiting: bool,
}

impl Batch {
    /// HFiles that the peer is told of.
    pub(super) fn hfiles_count(&self) -> u64 {
        let loads = self.cells.iter().filter_map(load_of);
        loads.flat_map(|load| load.stores).map(|store| store.store_file.len() as u64).sum()
    }

    /// One entry may be larger than a batch.
    fn is_full(&self, settings: &RegionServerSettings) -> bool {
        self.entries.len() >= settings.replication_batch_entries
            || self.bytes as u64 >= settings.replication_batch_bytes
    }
}

/// A WAL that is written, and how much of it may be read.
pub(super) fn acknowledged(resources: &RegionResources) -> Option<(String, u64)> {
    let (path, len) = resources.logs.tables().acknowledged()?;
    Some((path.file_name()?.to_string_lossy().into_owned(), len))
}

impl Wals {
    /// Lists them. Those of this server that are newer than the one it writes are left out: nothing is in them yet. There are
    /// none while it is not known what was acknowledged: for a moment when the log rolls, and once it is closed.
    pub(super) fn list(resources: &Arc<RegionResources>, whose: &Whose) -> Result<Wals> {
        let (resources, whose) = (Arc::clone(resources), whose.clone());
        let mut wals = Wals {
            resources,
            files: Vec::new(),
            current: None,
            whose,
            reading: Mutex::default(),
            repeated: Mutex::default(),
        };
        if let Whose::Gone(server) = &wals.whose {
            let roots = roots_of(&wals.resources);
            roots.into_iter().try_for_each(|(env, root)| add_archived(env, root, &mut wals.files))?;
            wals.files.retain(|file| file.server() == server);
        } else {
            let Some((current, _)) = acknowledged(&wals.resources) else { return Ok(wals) };
            let server = server_of(&current).to_string();
            let own_dir = server.replace("%2C", ",");
            for (env, root) in roots_of(&wals.resources) {
                if wals.whose == Whose::All {
                    list_in(env, root, &mut wals.files)?;
                } else {
                    add_files(env, &layout::wals_dir(root).join(&own_dir), true, &mut wals.files)?;
                    add_archived(env, root, &mut wals.files)?;
                }
            }
            if wals.whose == Whose::Own {
                wals.files.retain(|file| file.server() == server);
            }
            let begin = begin_of(&current);
            wals.files.retain(|file| file.server() != server || begin_of(&file.name) <= begin);
            // Such as one that has lost a race: what is in it is in another one. It is about to be removed.
            let useless = wals.resources.logs.tables().useless_files();
            wals.files.retain(|file| !useless.iter().any(|path| path.ends_with(&file.name)));
            wals.current = Some(current);
        }
        let Wals { files, current, .. } = &mut wals;
        // Last what is written: an earlier server's clock may have been ahead.
        let order =
            |file: &File| (Some(&file.name) == current.as_ref(), begin_of(&file.name), file.name.clone());
        files.sort_by_cached_key(order);
        files.dedup_by(|next, kept| next.name == kept.name); // it was moved between the two looks
        Ok(wals)
    }

    pub(super) fn names(&self) -> HashSet<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    pub(super) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// All but the one that is written now. `Busy` if that is not known at the moment.
    pub(super) fn closed(&self) -> Result<Vec<String>> {
        if self.current.is_none() {
            return Err(Error::new(ErrorKind::Busy, "the WAL is rolling or closed"));
        }
        let others = self.files.iter().filter(|file| Some(&file.name) != self.current.as_ref());
        Ok(others.map(|file| file.name.clone()).collect())
    }

    /// Whether there may be other WALs by now.
    pub(super) fn are_old(&self) -> bool {
        let is_written = !matches!(self.whose, Whose::Gone(_));
        is_written && acknowledged(&self.resources).map(|(name, _)| name) != self.current
    }

    /// WALs of which a peer still needs something.
    pub(super) fn queued_count(&self, queue: &Queue) -> usize {
        self.files.iter().filter(|file| !queue.is_done(&file.name)).count()
    }

    /// WALs that servers which are gone had left out: they had lost a race, and were to be removed. WALs are sent in their order, so the
    /// peer has something of a newer one, and nothing of these. Another one has what is in them.
    fn left_out(&self, queue: &Queue) -> HashSet<&str> {
        let live = self.current().map(server_of);
        let mut begun: HashMap<&str, Option<u64>> = HashMap::new();
        for wal in queue.begun() {
            let newest = begun.entry(server_of(wal)).or_default();
            *newest = begin_of(wal).max(*newest);
        }
        let is_left_out = |file: &&File| {
            let is_begun = queue.is_done(&file.name) || queue.offset(&file.name) > 0;
            let is_passed = begun.get(file.server()).is_some_and(|newest| begin_of(&file.name) < *newest);
            is_passed && !is_begun && live != Some(file.server())
        };
        self.files.iter().filter(is_left_out).map(|file| &*file.name).collect()
    }

    /// Notes WALs that were left out as finished, once all others of their server are: until then they are known by those.
    fn finish_left_out(&self, queue: &Queue, left_out: &HashSet<&str>, batch: &mut Batch) {
        let finished = &mut batch.reached.finished;
        for wal in left_out {
            let mut others = self
                .files
                .iter()
                .filter(|file| file.server() == server_of(wal) && !left_out.contains(&*file.name));
            if others.all(|file| queue.is_done(&file.name) || finished.contains(&file.name)) {
                tracing::info!(wal, "a WAL that its server has left out is not sent");
                finished.push((*wal).to_string());
            }
        }
    }

    /// Reads what the peer is to get next. An error of kind `Moved`: the WALs have to be listed again.
    /// With `serial` it ends before an entry that has to wait.
    pub(super) async fn read(
        &self,
        queue: &Queue,
        filter: &PeerFilter,
        ids: (ClusterUuid, ClusterUuid),
        serial: Option<&mut SerialChecker>,
    ) -> Result<Batch> {
        let left_out = self.left_out(queue);
        let mut batch = self.read_all_but(&left_out, queue, filter, ids, serial).await?;
        self.finish_left_out(queue, &left_out, &mut batch);
        Ok(batch)
    }

    async fn read_all_but(
        &self,
        left_out: &HashSet<&str>,
        queue: &Queue,
        filter: &PeerFilter,
        ids: (ClusterUuid, ClusterUuid),
        mut serial: Option<&mut SerialChecker>,
    ) -> Result<Batch> {
        let mut batch = Batch { queued_count: self.queued_count(queue), ..Batch::default() };
        let settings = self.resources.online.in_force();
        let mut read_bytes = 0;
        let is_next = |file: &File| !queue.is_done(&file.name) && !left_out.contains(&*file.name);
        for (at, file) in self.files.iter().enumerate().filter(|(_, file)| is_next(file)) {
            let Some(limit) = self.limit_of(&file.name) else { break };
            let noted = queue.offset(&file.name);
            if limit.is_some_and(|limit| limit <= noted) {
                break; // nothing new
            }
            let mut reader = self.reader_at(file, limit, noted)?;
            // A place behind the header was noted while there was no entry: what came then may be that of the WAL before.
            let begin =
                if noted <= reader.entries_begin() { self.repeated(at, limit, left_out)? } else { noted };
            if limit.is_some_and(|limit| limit <= begin) {
                break;
            }
            if limit.is_none() && begin > reader.end() {
                // Bytes that the operating system had when the machine went down. The peer has their edits.
                tracing::warn!(
                    wal = file.name,
                    begin,
                    end = reader.end(),
                    "a WAL is shorter than what was sent of it"
                );
                batch.reached.finished.push(file.name.clone());
                continue;
            }
            go_to(&mut reader, begin)?;
            let ended = loop {
                if batch.is_full(&settings) || read_bytes >= READ_BYTES_MAX {
                    break false;
                }
                let at = reader.offset();
                let Some((key, cells)) = reader.next_entry()? else { break true };
                let loads: Vec<_> = cells.iter().filter_map(load_of).collect();
                let row = cells.first().map(|cell| cell.bytes().slice_ref(cell.row()));
                let filtered = filter.apply(&key, cells, ids);
                if let (Some(serial), Some(row), Some(_)) = (serial.as_deref_mut(), row, &filtered)
                    && !can_send(serial, &key, &row, batch.entries.is_empty()).await?
                {
                    batch.reached.position = Some((file.name.clone(), at.max(begin)));
                    batch.is_waiting = true;
                    return Ok(batch);
                }
                read_bytes += reader.offset() - at;
                batch.read_count += 1;
                batch.write_time_ms = key.write_time;
                let hfiles =
                    loads.into_iter().flat_map(|load| load.stores).flat_map(|store| store.store_file);
                batch.reached.hfiles.extend(hfiles);
                if let Some((entry, cells)) = filtered {
                    batch.bytes += cells.iter().map(|cell| cell.bytes().len()).sum::<usize>();
                    batch.entries.push(entry);
                    batch.cells.extend(cells);
                }
            };
            match limit {
                None if ended => batch.reached.finished.push(file.name.clone()),
                _ => {
                    let offset = reader.torn_at().unwrap_or_else(|| reader.offset()).max(begin);
                    batch.reached.position = Some((file.name.clone(), offset));
                    batch.is_at_end = ended;
                    self.keep(&file.name, reader, offset);
                    return Ok(batch);
                }
            }
        }
        batch.is_at_end = true;
        Ok(batch)
    }

    /// How many bytes at the begin of a WAL hold what the peer gets from the one before: it may have failed or been late, and this one
    /// repeats its last entries. The peer gets nothing from those that are left out.
    fn repeated(&self, at: usize, limit: Option<u64>, left_out: &HashSet<&str>) -> Result<u64> {
        let file = &self.files[at];
        if let Some(known) = self.repeated.lock().get(&file.name) {
            return Ok(*known);
        }
        let open = |file: &File, limit: Option<u64>| {
            in_place(file, limit, |path| match limit {
                Some(limit) => WalReader::open_up_to(&file.env, path, limit),
                None => WalReader::open(&file.env, path),
            })
        };
        // A WAL that ended well, or goes on, repeats nothing if the one before it ended well. That is asked of two trailers.
        let is_sound = limit.is_some() || open(file, limit)?.has_trailer();
        let mut before = Vec::new();
        let is_compared = |other: &&File| other.server() == file.server() && !left_out.contains(&*other.name);
        for other in self.files[..at].iter().rev().filter(is_compared) {
            let has_trailer = open(other, None)?.has_trailer();
            if has_trailer && is_sound && before.is_empty() {
                break;
            }
            before.push(other);
            if has_trailer {
                break; // it was ended when all before it was
            }
        }
        let mut others = before.into_iter().map(|other| open(other, None));
        let len = repeated_len(&|| open(file, limit), &mut others)?;
        if len > 0 {
            tracing::info!(wal = file.name, len, "a WAL begins with entries of the one before it");
        }
        if len > 0 || limit.is_none() {
            self.repeated.lock().insert(file.name.clone(), len); // else it may have got no entry yet
        }
        Ok(len)
    }

    /// A reader at `offset`, or behind the end if the WAL is shorter than that.
    fn reader_at(&self, file: &File, limit: Option<u64>, offset: u64) -> Result<WalReader> {
        let kept = self.reading.lock().take();
        let kept = kept.filter(|kept| kept.name == file.name && kept.reader.offset() == offset);
        if let Some(Reading { mut reader, .. }) = kept {
            in_place(file, limit, |path| reader.go_on(&file.env, path, limit))?;
            return Ok(reader);
        }
        in_place(file, limit, |path| match limit {
            Some(limit) => WalReader::open_up_to(&file.env, path, limit),
            None => WalReader::open(&file.env, path),
        })
    }

    /// Leaves the reader of a compressed WAL to the next call, which begins at `offset` if the peer gets the batch.
    fn keep(&self, name: &str, reader: WalReader, offset: u64) {
        if reader.header().has_compression() && reader.offset() == offset {
            *self.reading.lock() = Some(Reading { name: name.to_string(), reader });
        }
    }

    /// How much may be read of a WAL; `Some(None)`: all of it. `None`: it is not known what was acknowledged.
    fn limit_of(&self, name: &str) -> Option<Option<u64>> {
        if self.current.as_deref() != Some(name) {
            return Some(None);
        }
        let (current, len) = acknowledged(&self.resources)?;
        Some((current == name).then_some(len)) // another one: this one is closed, and whole
    }
}

/// What cannot be found out is an error only if nothing else is to be sent before.
async fn can_send(serial: &mut SerialChecker, key: &pb::WalKey, row: &[u8], is_first: bool) -> Result<bool> {
    match serial.can_send(key, row).await {
        Err(_) if !is_first => Ok(false),
        answer => answer,
    }
}

/// Opens a file. Without a limit nothing is added to it any more.
fn in_place<T>(file: &File, limit: Option<u64>, open: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let sealed = if limit.is_none() && file.may_be_open { file.env.fs.seal(&file.path) } else { Ok(()) };
    let opened = sealed.map_err(Error::from).and_then(|()| open(&file.path));
    opened.map_err(|error| match file.env.fs.exists(&file.path) {
        Ok(false) => Error::new(ErrorKind::Moved, format!("{} was moved", file.path.display())),
        _ => error,
    })
}

/// Goes behind the entries that the peer has. A compressed WAL can only be read from its begin.
fn go_to(reader: &mut WalReader, offset: u64) -> Result<()> {
    if offset == 0 || reader.offset() == offset {
        return Ok(());
    }
    if !reader.header().has_compression() {
        return reader.seek(offset);
    }
    while reader.offset() < offset && reader.next_entry()?.is_some() {}
    Ok(())
}

/// WALs move from `WALs` to `oldWALs`, so those are looked at in this order.
fn list_in(env: &Env, root: &Path, files: &mut Vec<File>) -> Result<()> {
    let wals = layout::wals_dir(root);
    for server in list(env, &wals)?.into_iter().filter(|entry| entry.is_dir) {
        add_files(env, &wals.join(server.name), true, files)?;
    }
    add_archived(env, root, files)
}

/// The root of the WALs, and that of the tables if it is another one.
fn roots_of(resources: &RegionResources) -> Vec<(&Env, &Path)> {
    let of_tables = resources.wal_root.is_some().then_some((&resources.env, &*resources.root));
    std::iter::once(resources.wals()).chain(of_tables).collect()
}

/// Names of the WALs that were moved away from their servers. One that is not archived any more may be among them.
pub(super) fn archived(resources: &RegionResources) -> Result<HashSet<String>> {
    let mut files = Vec::new();
    roots_of(resources).into_iter().try_for_each(|(env, root)| add_archived(env, root, &mut files))?;
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// Names of the WALs that are being split: their servers were fenced, and make no others. One that is archived by now may be among them.
pub(super) fn splitting(resources: &RegionResources) -> Result<HashSet<String>> {
    let mut files = Vec::new();
    for (env, root) in roots_of(resources) {
        let wals = layout::wals_dir(root);
        let dirs =
            list(env, &wals)?.into_iter().filter(|entry| entry.is_dir && entry.name.ends_with(SPLITTING));
        dirs.map(|dir| wals.join(dir.name)).try_for_each(|dir| add_files(env, &dir, false, &mut files))?;
    }
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// The servers whose WALs have not all been split and moved away, named as in these.
pub(super) fn wal_owners(resources: &RegionResources) -> Result<HashSet<String>> {
    let (env, root) = resources.wals();
    let mut owners = HashSet::new();
    // Twice: a list may miss a directory that is renamed meanwhile, which happens once.
    for _ in 0..2 {
        let dirs = list(env, &layout::wals_dir(root))?.into_iter().filter(|entry| entry.is_dir);
        owners.extend(
            dirs.map(|dir| dir.name.strip_suffix(SPLITTING).unwrap_or(&dir.name).replace(',', "%2C")),
        );
    }
    Ok(owners)
}

/// Whether the WALs of a server, named as in these, have been split and moved away.
pub(super) fn is_gone(resources: &RegionResources, server: &str) -> Result<bool> {
    let (env, root) = resources.wals();
    let dir = layout::wals_dir(root).join(server.replace("%2C", ","));
    let splitting = dir.with_file_name(format!("{}{SPLITTING}", server.replace("%2C", ",")));
    Ok(!env.fs.exists(&dir)? && !env.fs.exists(&splitting)?)
}

fn add_archived(env: &Env, root: &Path, files: &mut Vec<File>) -> Result<()> {
    add_files(env, &layout::old_wals_dir(root), false, files)
}

fn add_files(env: &Env, dir: &Path, may_be_open: bool, files: &mut Vec<File>) -> Result<()> {
    let found = list(env, dir)?.into_iter().filter(|entry| !entry.is_dir && begin_of(&entry.name).is_some());
    files.extend(found.map(|entry| File {
        path: dir.join(&entry.name),
        name: entry.name,
        env: env.clone(),
        may_be_open,
    }));
    Ok(())
}

fn list(env: &Env, dir: &Path) -> Result<Vec<halcyon_env::DirEntry>> {
    match env.fs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}
