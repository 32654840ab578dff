//! `halcyon inspect snapshot`: what HBase's SnapshotInfo prints, and who shares the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName, layout};
use prost::Message;
use serde_json::{Value, json};

use crate::output::{Done, Output, Stop};
use crate::{place, text};

const INFO: &str = ".snapshotinfo";
const MANIFEST: &str = "data.manifest";

/// Print snapshots, their files, and who shares them.
#[derive(Debug, Default, clap::Args)]
pub struct SnapshotArgs {
    /// Snapshots to print; all, if none is named.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Snapshot to print; as the argument NAME.
    #[arg(long, value_name = "NAME")]
    pub snapshot: Vec<String>,
    /// Root directory.
    #[arg(long, alias = "remote-dir", value_name = "DIR", default_value = place::DEFAULT_ROOT)]
    pub data: PathBuf,
    /// Print every file, and what --stats prints.
    #[arg(long)]
    pub files: bool,
    /// Print counts and sizes of files, and how many are shared.
    #[arg(long)]
    pub stats: bool,
    /// Print the table's descriptor.
    #[arg(long)]
    pub schema: bool,
    /// Print one line for each snapshot.
    #[arg(long)]
    pub list_snapshots: bool,
    /// Print sizes in bytes.
    #[arg(long)]
    pub size_in_bytes: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// A store file as a manifest names it.
struct NamedFile {
    region: String,
    family: String,
    name: String,
    /// As the manifest says.
    len: Option<u64>,
    /// In the table's directory, and in the archive.
    places: [PathBuf; 2],
}

/// Where the bytes of a snapshot's file are.
enum Found {
    Table(u64),
    Archive(u64),
    Missing,
}

#[derive(Default)]
struct Stats {
    table: (u64, u64),
    archive: (u64, u64),
    unshared: (u64, u64),
    missing: u64,
    wrong_size: u64,
}

/// Snapshots that name a file, by its place in the archive.
type Owners = BTreeMap<PathBuf, BTreeSet<String>>;

struct Inspector<'a> {
    env: &'a Env,
    args: &'a SnapshotArgs,
    owners: Owners,
}

pub(crate) fn run(env: &Env, args: &SnapshotArgs, out: &mut Output<'_>) -> Done {
    let dir = layout::snapshots_dir(&args.data);
    let all: Vec<String> =
        place::directories(env, &dir).map_err(Stop::Failed)?.iter().map(|path| place::name(path)).collect();
    let named: Vec<String> = args.names.iter().chain(&args.snapshot).cloned().collect();
    if all.is_empty() && named.is_empty() && env.fs.list(&args.data).is_err() {
        return Err(Stop::Failed(format!("root directory {} is not there", args.data.display())));
    }
    let mut inspector = Inspector { env, args, owners: Owners::new() };
    let details = args.files || args.stats;
    if details {
        inspector.find_owners(&all, out)?;
    }
    for name in if named.is_empty() { &all } else { &named } {
        inspector.snapshot(name, &all, out)?;
    }
    Ok(())
}

impl Inspector<'_> {
    fn path(&self, name: &str, file: &str) -> PathBuf {
        layout::snapshots_dir(&self.args.data).join(name).join(file)
    }

    fn decode<M: Message + Default>(&self, path: &Path, out: &mut Output<'_>) -> Result<Option<M>, Stop> {
        let decoded = match self.env.fs.read(path) {
            Ok(bytes) => M::decode(&bytes[..]).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) => Err(error.to_string()),
        };
        match decoded {
            Ok(message) => Ok(Some(message)),
            Err(what) => out.damage(path, None, &what).map(|()| None),
        }
    }

    /// Reads all manifests. Damage to those that are printed is reported when they are printed.
    fn find_owners(&mut self, all: &[String], _out: &mut Output<'_>) -> Done {
        for name in all {
            let path = self.path(name, MANIFEST);
            let manifest = self.env.fs.read(&path).ok();
            let manifest = manifest.and_then(|bytes| pb::SnapshotDataManifest::decode(&bytes[..]).ok());
            let files = manifest.map(|manifest| named_files(&self.args.data, &manifest).0);
            for file in files.into_iter().flatten() {
                self.owners.entry(file.places[1].clone()).or_default().insert(name.clone());
            }
        }
        Ok(())
    }

    fn snapshot(&self, name: &str, all: &[String], out: &mut Output<'_>) -> Done {
        if !all.iter().any(|known| known == name) {
            let path = layout::snapshots_dir(&self.args.data);
            return out.failed(&path, &format!("snapshot '{name}' is not in {}", path.display()));
        }
        let Some(info) = self.decode::<pb::SnapshotDescription>(&self.path(name, INFO), out)? else {
            return Ok(());
        };
        let is_expired = is_expired(&info, self.env.clock.now_ms());
        if self.args.list_snapshots {
            return print_line(&info, is_expired, out);
        }
        print_info(&info, is_expired, out)?;
        if !(self.args.files || self.args.stats || self.args.schema) {
            return Ok(());
        }
        let path = self.path(name, MANIFEST);
        let Some(manifest) = self.decode::<pb::SnapshotDataManifest>(&path, out)? else { return Ok(()) };
        if self.args.schema {
            print_schema(&path, &manifest, out)?;
        }
        if self.args.files || self.args.stats {
            self.files(name, &path, &manifest, out)?;
        }
        Ok(())
    }

    fn files(
        &self,
        name: &str,
        path: &Path,
        manifest: &pb::SnapshotDataManifest,
        out: &mut Output<'_>,
    ) -> Done {
        let (files, errors) = named_files(&self.args.data, manifest);
        for error in errors {
            out.damage(path, None, &format!("{}: {error}", path.display()))?;
        }
        let mut stats = Stats::default();
        for file in &files {
            self.file(name, file, &mut stats, out)?;
        }
        self.print_stats(manifest.region_manifests.len(), &stats, out)
    }

    fn file(&self, snapshot: &str, file: &NamedFile, stats: &mut Stats, out: &mut Output<'_>) -> Done {
        let found = self.find(file);
        let others: Vec<&str> = self
            .owners
            .get(&file.places[1])
            .into_iter()
            .flatten()
            .filter(|owner| *owner != snapshot)
            .map(String::as_str)
            .collect();
        let (len, state) = match found {
            Found::Table(len) => {
                stats.table = (stats.table.0 + 1, stats.table.1 + len);
                (Some(len), "shared with the table")
            }
            Found::Archive(len) => {
                stats.archive = (stats.archive.0 + 1, stats.archive.1 + len);
                if others.is_empty() {
                    stats.unshared = (stats.unshared.0 + 1, stats.unshared.1 + len);
                }
                (Some(len), "archive")
            }
            Found::Missing => {
                stats.missing += 1;
                (None, "NOT FOUND")
            }
        };
        if self.args.files {
            self.print_file(file, len, state, &others, out)?;
        }
        self.check(file, len, stats, out)
    }

    fn check(&self, file: &NamedFile, len: Option<u64>, stats: &mut Stats, out: &mut Output<'_>) -> Done {
        let path = file.places[0].display();
        match (len, file.len) {
            (None, _) => out.damage(
                &file.places[0],
                None,
                &format!("{path}: expected the file there or in the archive, found it in neither"),
            ),
            (Some(found), Some(expected)) if found != expected => {
                stats.wrong_size += 1;
                let what = format!("{path}: expected {expected} bytes as the manifest says, found {found}");
                out.damage(&file.places[0], None, &what)
            }
            _ => Ok(()),
        }
    }

    fn find(&self, file: &NamedFile) -> Found {
        let len = |path: &PathBuf| self.env.fs.open(path).and_then(|file| file.len()).ok();
        match (len(&file.places[0]), len(&file.places[1])) {
            (Some(len), _) => Found::Table(len),
            (None, Some(len)) => Found::Archive(len),
            (None, None) => Found::Missing,
        }
    }

    fn size(&self, bytes: u64) -> String {
        if self.args.size_in_bytes { bytes.to_string() } else { text::size(bytes) }
    }

    fn print_file(
        &self,
        file: &NamedFile,
        len: Option<u64>,
        state: &str,
        others: &[&str],
        out: &mut Output<'_>,
    ) -> Done {
        let NamedFile { region, family, name, .. } = file;
        let object = || {
            json!({
                "region": region, "family": family, "file": name, "bytes": len, "state": state, "snapshots": others,
            })
        };
        out.say("storeFile", object, || {
            let size = len.map_or_else(|| "-".to_string(), |len| self.size(len));
            let shared =
                if others.is_empty() { String::new() } else { format!(", also in {}", others.join(", ")) };
            format!("  {size:>8} {region}/{family}/{name} ({state}{shared})")
        })
    }

    fn print_stats(&self, regions: usize, stats: &Stats, out: &mut Output<'_>) -> Done {
        let Stats { table, archive, unshared, missing, wrong_size } = stats;
        let (count, bytes) = (table.0 + archive.0, table.1 + archive.1);
        let object = || {
            json!({
                "regions": regions, "files": count, "bytes": bytes, "sharedWithTable": table.0,
                "sharedWithTableBytes": table.1, "archive": archive.0, "archiveBytes": archive.1,
                "archiveOnlyHere": unshared.0, "archiveOnlyHereBytes": unshared.1, "missing": missing,
                "wrongSize": wrong_size,
            })
        };
        out.say("stats", object, || {
            let percent = if bytes == 0 { 0.0 } else { table.1 as f64 * 100.0 / bytes as f64 };
            format!(
                "{regions} regions, {count} HFiles ({} in archive), total size {} ({percent:.2}% {} shared with the \
                 table, {} only in this snapshot), {missing} missing, {wrong_size} of another size",
                archive.0,
                self.size(bytes),
                self.size(table.1),
                self.size(unshared.1)
            )
        })
    }
}

/// The files that a manifest names, and what in it makes no sense.
fn named_files(root: &Path, manifest: &pb::SnapshotDataManifest) -> (Vec<NamedFile>, Vec<String>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for region in &manifest.region_manifests {
        let info = match RegionInfo::from_pb(&region.region_info) {
            Ok(info) => info,
            Err(error) => {
                errors.push(format!("a region: {error}"));
                continue;
            }
        };
        for family in &region.family_files {
            for file in &family.store_files {
                match named_file(root, &info, &family.family_name, file) {
                    Some(file) => files.push(file),
                    None => errors
                        .push(format!("region {info}: expected the name of a file, found \"{}\"", file.name)),
                }
            }
        }
    }
    (files, errors)
}

/// `None` if the names are none of files: no path is made of them.
fn named_file(
    root: &Path,
    info: &RegionInfo,
    family: &[u8],
    file: &pb::snapshot_region_manifest::StoreFile,
) -> Option<NamedFile> {
    let family_name = std::str::from_utf8(family).ok().filter(|name| is_file_name(name))?;
    let (name, owner) = layout::parse_reference_name(&file.name).unwrap_or((&file.name, info.encoded_name()));
    let own: (TableName, &str, &str) = (info.table().clone(), owner, name);
    let of_mob = info.is_of_mob_files();
    let link = if of_mob { layout::parse_mob_link_name(name) } else { layout::parse_link_name(name) };
    let len = file.file_size.filter(|_| file.reference.is_none() && !(of_mob && link.is_some()));
    let (table, owner, name) = link.unwrap_or(own);
    let live_root = if of_mob { layout::mob_home(root) } else { root.to_path_buf() };
    if !is_file_name(name) {
        return None;
    }
    let below = Path::new(family_name).join(name);
    Some(NamedFile {
        region: info.encoded_name().to_string(),
        family: family_name.to_string(),
        name: file.name.clone(),
        len,
        places: [
            layout::region_dir(&live_root, &table, owner).join(&below),
            layout::archive_region_dir(root, &table, owner).join(&below),
        ],
    })
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}

fn is_expired(info: &pb::SnapshotDescription, now_ms: i64) -> bool {
    let end = info.ttl().checked_mul(1000).and_then(|ttl| info.creation_time().checked_add(ttl));
    info.ttl() > 0 && end.is_some_and(|end| end < now_ms)
}

fn fields(info: &pb::SnapshotDescription, is_expired: bool) -> Vec<(&'static str, Value)> {
    vec![
        ("Name", info.name.clone().into()),
        ("Type", info.r#type().as_str_name().into()),
        ("Table", info.table().into()),
        ("Format", info.version().into()),
        ("Created", text::time(info.creation_time()).into()),
        ("Ttl", if info.ttl() > 0 { format!("{} s", info.ttl()).into() } else { "FOREVER".into() }),
        ("Expired", is_expired.into()),
        ("Owner", info.owner().into()),
    ]
}

fn print_info(info: &pb::SnapshotDescription, is_expired: bool, out: &mut Output<'_>) -> Done {
    let fields = fields(info, is_expired);
    let object = || {
        let named = fields.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
        Value::Object(named.collect())
    };
    out.say("snapshot", object, || {
        let lines = fields.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{name:>9}: {text}"),
            value => format!("{name:>9}: {value}"),
        });
        format!("Snapshot Info\n{}", lines.collect::<Vec<String>>().join("\n"))
    })
}

fn print_line(info: &pb::SnapshotDescription, is_expired: bool, out: &mut Output<'_>) -> Done {
    let created = text::time(info.creation_time());
    let object =
        || json!({"name": info.name, "created": created, "table": info.table(), "expired": is_expired});
    let expired = if is_expired { " | EXPIRED" } else { "" };
    out.say("snapshot", object, || format!("{:<20} | {created:>24} | {}{expired}", info.name, info.table()))
}

fn print_schema(path: &Path, manifest: &pb::SnapshotDataManifest, out: &mut Output<'_>) -> Done {
    let table = match TableDescriptor::from_pb(&manifest.table_schema) {
        Ok(table) => table,
        Err(error) => return out.damage(path, None, &format!("{}: {error}", path.display())),
    };
    let attributes = |all: &mut dyn Iterator<Item = (String, String)>| -> Value {
        Value::Object(all.map(|(name, value)| (name, value.into())).collect())
    };
    let text_of = |(name, value): (&bytes::Bytes, &bytes::Bytes)| (text::binary(name), text::binary(value));
    let families = || {
        let family = |family: &halcyon_schema::FamilyDescriptor| json!({"name": family.name_str(), "attributes": attributes(&mut family.attributes().map(text_of))});
        table.families().iter().map(family).collect::<Vec<Value>>()
    };
    let object = || {
        json!({
            "table": table.name().as_str(), "attributes": attributes(&mut table.attributes().map(text_of)),
            "families": families(),
        })
    };
    out.say("schema", object, || {
        let mut lines = vec![format!("Table Descriptor\n{}", table.name())];
        lines.push(format!("  {}", attributes(&mut table.attributes().map(text_of))));
        lines
            .extend(families().iter().map(|family| format!("  {} {}", family["name"], family["attributes"])));
        lines.join("\n")
    })
}
