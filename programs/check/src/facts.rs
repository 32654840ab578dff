//! What is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use halcyon_cell::Cell;
use halcyon_env::{DirEntry, Env};
use halcyon_inspect::meta::{MetaRow, read, read_rows};
use halcyon_inspect::{Output, Stop, listed, place};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, TableName, layout};

/// A region as its row of `hbase:meta` has it.
#[derive(Clone, Debug)]
pub(crate) struct MetaRegion {
    pub info: RegionInfo,
    pub state: Option<String>,
    /// When the state was written.
    pub state_ms: i64,
    /// The server that has it, or had it last.
    pub server: Option<ServerName>,
    /// Regions that it was merged of or split into; their directories may still be there.
    pub relatives: Vec<RegionInfo>,
}

impl MetaRegion {
    /// Whether it serves rows: not the parent of a split, not a replica.
    pub(crate) fn is_live(&self) -> bool {
        !self.info.is_split() && !self.info.is_offline() && self.info.replica_id() == 0
    }
}

/// The directory of a region.
#[derive(Clone, Debug)]
pub(crate) struct RegionDir {
    pub table: TableName,
    pub path: PathBuf,
    /// The error is a sentence.
    pub info: Result<RegionInfo, String>,
    /// By family, without hidden names.
    pub families: BTreeMap<String, Vec<DirEntry>>,
    /// References and links that lead to no file.
    pub dangling: Vec<PathBuf>,
    /// References that cannot be read; each with why.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Store files, and the mob files that they refer to and that are nowhere.
    pub missing_mob_files: Vec<(PathBuf, TableName, String)>,
    /// Files of which it is not known what they refer to; each with why.
    pub unreadable_files: Vec<(PathBuf, String)>,
    /// Files that the list of their store does not name; they are not among `families`.
    pub unlisted: Vec<PathBuf>,
    /// Files that a list names and that are not there.
    pub missing_files: Vec<PathBuf>,
    /// Lists that cannot be read; each with why.
    pub unreadable_lists: Vec<(PathBuf, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub regions: Vec<MetaRegion>,
    /// States of tables, by name.
    pub states: BTreeMap<TableName, String>,
    /// Rows that make no sense.
    pub odd_rows: Vec<String>,
    pub descriptors: BTreeMap<TableName, TableDescriptor>,
    /// `None`: not known.
    pub namespaces: Option<BTreeSet<String>>,
    /// Tables with a directory.
    pub tables_with_dir: BTreeSet<TableName>,
    pub dirs: Vec<RegionDir>,
}

impl Facts {
    /// Reads the files of a root directory.
    pub(crate) fn of_directory(env: &Env, root: &Path, out: &mut Output<'_>) -> Result<Facts, Stop> {
        if env.fs.list(&RegionInfo::meta().dir(root)).is_err() {
            return Err(Stop::Failed(format!(
                "{} holds no hbase:meta: name the root with --data",
                root.display()
            )));
        }
        let mut facts = Facts::default();
        facts.take_rows(read(env, root, out)?.0);
        facts.add_files(env, root, out)?;
        facts.namespaces = facts.read_namespaces(env, root, out)?;
        Ok(facts)
    }

    /// Adds rows of `hbase:meta`.
    pub(crate) fn take_rows(&mut self, rows: Vec<MetaRow>) {
        for row in rows {
            let shown = halcyon_inspect::text::binary(&row.row);
            self.odd_rows.extend(row.damage.iter().map(|what| format!("row {shown}: {what}")));
            if let (Some(state), Ok(table)) = (row.table_state(), TableName::parse(&row.row)) {
                self.states.insert(table, state);
            }
            if let Some(info) = row.region.clone() {
                self.regions.push(MetaRegion {
                    info,
                    state: row.region_state(),
                    state_ms: row.cell(b"info", b"state").map_or(0, Cell::timestamp),
                    server: row.server(),
                    relatives: relatives(&row),
                });
            }
        }
        self.regions.sort_by(|a, b| a.info.cmp(&b.info));
    }

    /// Adds directories, and descriptors from `.tabledesc`.
    fn add_files(&mut self, env: &Env, root: &Path, out: &mut Output<'_>) -> Result<(), Stop> {
        for namespace in place::directories(env, &layout::data_dir(root)).map_err(Stop::Failed)? {
            for dir in place::directories(env, &namespace).map_err(Stop::Failed)? {
                let name = TableName::new(place::name(&namespace).as_bytes(), place::name(&dir).as_bytes());
                let Ok(table) = name else {
                    out.failed(&dir, &format!("{}: no table has such a name", dir.display()))?;
                    continue;
                };
                match listed::descriptor(env, root, &table) {
                    Ok(found) => self.descriptors.extend(found.map(|found| (table.clone(), found))),
                    Err(sentence) => out.damage(&dir, None, &sentence)?,
                }
                for region in place::directories(env, &dir).map_err(Stop::Failed)? {
                    let mut region = region_dir(env, &table, self.descriptors.get(&table), region)?;
                    region.look_for_mob_files(env, root, self.descriptors.get(&table));
                    self.dirs.push(region);
                }
                self.tables_with_dir.insert(table);
            }
        }
        Ok(())
    }

    /// The rows of `hbase:namespace`, and the namespaces that always are.
    fn read_namespaces(
        &self,
        env: &Env,
        root: &Path,
        out: &mut Output<'_>,
    ) -> Result<Option<BTreeSet<String>>, Stop> {
        let built_in = [TableName::DEFAULT_NAMESPACE, TableName::SYSTEM_NAMESPACE].map(str::to_string);
        let mut names = BTreeSet::from(built_in);
        let regions = self.regions.iter().filter(|region| *region.info.table() == TableName::NAMESPACE);
        let mut is_known = false;
        for region in regions.filter(|region| region.is_live()) {
            is_known = true;
            let rows = read_rows(env, root, &region.info, out)?;
            names.extend(rows.iter().map(|cells| String::from_utf8_lossy(cells[0].row()).into_owned()));
        }
        Ok(is_known.then_some(names))
    }
}

fn relatives(row: &MetaRow) -> Vec<RegionInfo> {
    let is_relative = |cell: &&Cell| {
        cell.family() == b"info"
            && (cell.qualifier().starts_with(b"merge")
                || [&b"splitA"[..], b"splitB"].contains(&cell.qualifier()))
    };
    let cells = row.cells.iter().filter(is_relative);
    cells.filter_map(|cell| RegionInfo::decode_value(cell.value()).ok()).collect()
}

fn region_dir(
    env: &Env,
    table: &TableName,
    descriptor: Option<&TableDescriptor>,
    path: PathBuf,
) -> Result<RegionDir, Stop> {
    let file = path.join(layout::REGION_INFO);
    let bytes = env.fs.read(&file).map_err(|error| error.to_string());
    let info = bytes.and_then(|bytes| {
        RegionInfo::decode_file(&bytes).map_err(|error| format!("{}: {error}", file.display()))
    });
    let mut dir = RegionDir {
        table: table.clone(),
        path: path.clone(),
        info,
        families: BTreeMap::new(),
        dangling: Vec::new(),
        unreadable: Vec::new(),
        missing_mob_files: Vec::new(),
        unreadable_files: Vec::new(),
        unlisted: Vec::new(),
        missing_files: Vec::new(),
        unreadable_lists: Vec::new(),
    };
    for family in place::directories(env, &path).map_err(Stop::Failed)? {
        let name = place::name(&family);
        if [layout::RECOVERED_EDITS, "recovered.wals"].contains(&&*name) {
            continue;
        }
        let entries = place::list(env, &family).map_err(Stop::Failed)?;
        let shown = entries.into_iter().filter(|entry| !entry.name.starts_with('.')).collect();
        let shown = dir.only_listed(env, &family, descriptor, shown);
        for entry in &shown {
            dir.look_at(env, &family, entry);
        }
        dir.families.insert(name, shown);
    }
    Ok(dir)
}

impl RegionDir {
    /// Notes what the list of a store and its directory do not have in common. The store's files, and what is no file.
    fn only_listed(
        &mut self,
        env: &Env,
        family: &Path,
        table: Option<&TableDescriptor>,
        entries: Vec<DirEntry>,
    ) -> Vec<DirEntry> {
        let names = match listed::files(env, family, table) {
            Ok(Some(names)) => names,
            Ok(None) => return entries,
            Err(sentence) => {
                self.unreadable_lists.push((family.join(layout::FILE_LIST), sentence));
                return entries;
            }
        };
        let missing = names.iter().filter(|name| entries.iter().all(|entry| entry.name != **name));
        self.missing_files.extend(missing.map(|name| family.join(name)));
        let (own, unlisted): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.is_dir || names.contains(&entry.name));
        self.unlisted.extend(unlisted.into_iter().map(|entry| family.join(entry.name)));
        own
    }

    /// Whether the mob files are there that the store files of families with `IS_MOB` refer to.
    fn look_for_mob_files(&mut self, env: &Env, root: &Path, table: Option<&TableDescriptor>) {
        let families = table.map_or(&[][..], |table| table.families());
        for family in families.iter().filter(|family| family.is_mob()).map(|family| family.name_str()) {
            let entries = self.families.get(&*family).map_or(&[][..], Vec::as_slice);
            let is_own = |entry: &&DirEntry| {
                halcyon_region::is_store_file_name(&entry.name)
                    && layout::parse_reference_name(&entry.name).is_none()
            };
            for entry in entries.iter().filter(is_own) {
                let path = self.path.join(&*family).join(&entry.name);
                let refs = match halcyon_region::mob_references_of_file(env, &path) {
                    Ok(refs) => refs.unwrap_or_default(),
                    Err(error) => {
                        self.unreadable_files.push((path, error.to_string()));
                        continue;
                    }
                };
                for (table, file) in refs.iter() {
                    let places = [
                        layout::mob_family_dir(root, table, &family).join(file),
                        layout::mob_archive_dir(root, table, &family).join(file),
                    ];
                    match env.fs.first_existing(places.iter().map(PathBuf::as_path)) {
                        Ok(Some(_)) => {}
                        Ok(None) => {
                            self.missing_mob_files.push((path.clone(), table.clone(), file.to_string()));
                        }
                        Err(error) => self.unreadable_files.push((places[0].clone(), error.to_string())),
                    }
                }
            }
        }
    }

    fn look_at(&mut self, env: &Env, family: &Path, entry: &DirEntry) {
        let path = family.join(&entry.name);
        let Some(places) = place::targets(family, &entry.name) else { return };
        if layout::parse_reference_name(&entry.name).is_some()
            && let Err(error) = halcyon_region::Reference::read(env, &path)
        {
            self.unreadable.push((path.clone(), error.to_string()));
        }
        match env.fs.first_existing(places.iter().map(PathBuf::as_path)) {
            Ok(None) => self.dangling.push(path),
            Ok(Some(_)) => {}
            Err(error) => self.unreadable.push((path, error.to_string())),
        }
    }
}
