//! Directories and files, compared with `hbase:meta` and descriptors.

use std::collections::{HashMap, HashSet};

use halcyon_inspect::place;
use halcyon_region::is_store_file_name;
use halcyon_schema::{RegionInfo, TableName, layout};

use crate::facts::{Facts, RegionDir};
use crate::finding::{Finding, Repair};

pub(crate) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let found: HashSet<String> = facts.dirs.iter().map(|dir| place::name(&dir.path)).collect();
    for region in facts.regions.iter().filter(|region| region.is_live()) {
        let info = &region.info;
        if !found.contains(info.encoded_name()) {
            let what = format!("region {info} has no directory");
            let advice =
                "look for its files in the archive and in snapshots; opening the region makes it empty";
            findings.push(Finding::new("no-directory", Some(info.table().as_str()), what, advice));
        }
    }
    let known: HashMap<&str, &RegionInfo> = facts
        .regions
        .iter()
        .flat_map(|region| region.relatives.iter().chain([&region.info]))
        .map(|info| (info.encoded_name(), info))
        .collect();
    for dir in facts.dirs.iter().filter(|dir| !dir.table.is_meta()) {
        findings.extend(region_dir(dir, known.get(&*place::name(&dir.path)).copied()));
        findings.extend(files(facts, dir));
    }
    for table in facts
        .tables_with_dir
        .iter()
        .filter(|table| !facts.descriptors.contains_key(table) && !is_known(facts, table))
    {
        let what = format!("table {table} has a directory, no descriptor, and no region in hbase:meta");
        let advice = "move the directory away, with the server stopped, if it holds nothing that is needed";
        findings.push(Finding::new("orphan-table", Some(table.as_str()), what, advice));
    }
    findings
}

fn is_known(facts: &Facts, table: &TableName) -> bool {
    table.is_meta() || facts.regions.iter().any(|region| region.info.table() == table)
}

fn region_dir(dir: &RegionDir, known: Option<&RegionInfo>) -> Option<Finding> {
    let (table, path) = (Some(dir.table.as_str()), dir.path.display());
    match (&dir.info, known) {
        (Ok(info), _) if info.encoded_name() != place::name(&dir.path) => {
            let what = format!("{path}: its .regioninfo is that of region {info}");
            Some(Finding::new(
                "wrong-regioninfo",
                table,
                what,
                "hbck2 regionInfoMismatch, with the server stopped",
            ))
        }
        (Ok(info), None) => {
            let what = format!("{path}: region {info} is not in hbase:meta");
            let advice = format!("hbck2 addFsRegionsMissingInMeta {}, then hbck2 assigns", dir.table);
            Some(Finding::new("orphan-region", table, what, advice))
        }
        (Err(error), Some(region)) => {
            let repair =
                Repair::WriteRegionInfo { path: dir.path.join(layout::REGION_INFO), region: region.clone() };
            let advice = "write .regioninfo as hbase:meta has the region";
            Some(Finding::new("no-regioninfo", table, error.clone(), advice).with_repair(repair))
        }
        (Err(error), None) => {
            let what = format!("{error}, and hbase:meta has no region of directory {path}");
            let advice =
                "look at its files with halcyon inspect hfile; bulk-load them, or move the directory away";
            Some(Finding::new("orphan-directory", table, what, advice))
        }
        (Ok(_), Some(_)) => None,
    }
}

fn files(facts: &Facts, dir: &RegionDir) -> Vec<Finding> {
    let table = Some(dir.table.as_str());
    let mut findings = Vec::new();
    for path in &dir.dangling {
        let is_reference = layout::parse_reference_name(&place::name(path)).is_some();
        let (kind, what) =
            if is_reference { ("dangling-reference", "reference") } else { ("dangling-link", "link") };
        let what = format!("{}: the {what} leads to no file; its region does not open", path.display());
        let advice =
            "search backups and snapshots for the file first; then move the file aside: its rows are lost";
        findings.push(
            Finding::new(kind, table, what, advice).with_repair(Repair::MoveAside { path: path.clone() }),
        );
    }
    for (path, error) in dir.unreadable.iter().filter(|(path, _)| !dir.dangling.contains(path)) {
        let advice = format!("compare with the other half of the split and rewrite {}", path.display());
        findings.push(Finding::new("unreadable-reference", table, error.clone(), advice));
    }
    for (path, error) in &dir.unreadable_files {
        let advice = format!("look at {} with halcyon inspect hfile", path.display());
        findings.push(Finding::new("unreadable-file", table, error.clone(), advice));
    }
    for path in &dir.unlisted {
        let what =
            format!("{}: the list of the store's files does not name it; no read sees it", path.display());
        let advice = "move it away: a crash during a flush or compaction has left it";
        let repair = Repair::MoveAside { path: path.clone() };
        findings.push(Finding::new("unlisted-file", table, what, advice).with_repair(repair));
    }
    for path in &dir.missing_files {
        let what = format!(
            "{}: the list of the store's files names it, and it is not there; its region does not open",
            path.display()
        );
        let advice = "search the archive, backups and snapshots for the file, and put it back";
        findings.push(Finding::new("missing-file", table, what, advice));
    }
    for (path, error) in &dir.unreadable_lists {
        let advice =
            format!("restore {} from a backup or snapshot; its region does not open", path.display());
        findings.push(Finding::new("unreadable-list", table, error.clone(), advice));
    }
    for (path, owner, file) in &dir.missing_mob_files {
        let what = format!(
            "{}: mob file {file} of table {owner} is nowhere; reads of its values fail",
            path.display()
        );
        let advice =
            "search backups and snapshots for the mob file, and put it into the table's mob directory";
        findings.push(Finding::new("missing-mob-file", table, what, advice));
    }
    let descriptor = facts.descriptors.get(&dir.table);
    for (family, entries) in &dir.families {
        let path = dir.path.join(family);
        if descriptor.is_some_and(|table| table.family(family.as_bytes()).is_none()) {
            let what = format!("{}: table {} has no family {family}", path.display(), dir.table);
            let advice = "move the directory away, with the server stopped; the region does not read it";
            findings.push(Finding::new("unknown-family", table, what, advice));
        }
        let unknown = entries.iter().filter(|entry| entry.is_dir || !is_named(&entry.name));
        for entry in unknown {
            let what = format!("{}: no reader takes this for a store file", path.join(&entry.name).display());
            let advice = "look at it with halcyon inspect hfile; move it away, with the server stopped";
            findings.push(Finding::new("unknown-file", table, what, advice));
        }
    }
    findings
}

fn is_named(name: &str) -> bool {
    let file = layout::parse_reference_name(name).map_or(name, |(file, _)| file);
    is_store_file_name(name) || layout::parse_link_name(file).is_some()
}
