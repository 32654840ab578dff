//! What the options mean for a source, and what is said about it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use halcyon_client::FamilyDescriptor;
use halcyon_env::Env;

use crate::args::{AccumuloArgs, VisibilityMode, bytes};
use crate::check::Findings;
use crate::export::TableConfig;
use crate::mapping::{FamilyTarget, Mapping};
use crate::source::Source;

/// Visibility expressions that are printed.
const SHOWN_MAX: usize = 20;

/// Every table has it: it limits keys to 1 MiB.
const DEFAULT_CONSTRAINT: &str = ".DefaultKeySizeConstraint";

/// Options that say what is imported and how: a run with others is another import.
pub(crate) fn identity(args: &AccumuloArgs) -> Vec<String> {
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let mut options = vec![
        format!("--table {}", args.table),
        format!("--to {}", args.to),
        format!("--default-family {}", args.default_family),
        format!("--separator {}", args.separator),
        format!("--visibility {:?}", args.visibility),
        format!("--visibility-separator {}", args.visibility_separator),
    ];
    for (name, value) in [
        ("--from", args.from.clone()),
        ("--instance", path(&args.instance)),
        ("--source-table", args.source_table.clone()),
        ("--auths", args.auths.as_ref().map(|auths| auths.join(","))),
        ("--mapping", path(&args.mapping)),
        ("--versions", args.versions.map(|count| count.to_string())),
    ] {
        options.extend(value.map(|value| format!("{name} {value}")));
    }
    options.extend(args.family.iter().map(|one| format!("--family {one}")));
    for (name, is_set) in [
        ("--groups-as-families", args.groups_as_families),
        ("--without-metadata", args.without_metadata),
        ("--ignore-iterators", args.ignore_iterators),
        ("--skip-damaged", args.skip_damaged),
    ] {
        options.extend(is_set.then(|| name.to_string()));
    }
    if args.regions > 1 {
        options.push(format!("--regions {}", args.regions));
    }
    options
}

/// Where families go. Two of Accumulo's that keep their qualifiers cannot share one.
pub(crate) fn mapping(args: &AccumuloArgs, env: &Env, config: &TableConfig) -> Result<Mapping, String> {
    let mut lines: Vec<(String, String)> =
        args.family.iter().map(|line| (line.clone(), "--family".to_string())).collect();
    if let Some(path) = &args.mapping {
        let text = env.local.read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8(text).map_err(|_| format!("{}: no UTF-8", path.display()))?;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                lines.push((line.to_string(), format!("{} line {}", path.display(), number + 1)));
            }
        }
    }
    let mut families = BTreeMap::new();
    let mut owned = BTreeSet::from([family(&args.default_family)?]);
    for (line, place) in lines {
        let (name, target) =
            line.rsplit_once('=').ok_or_else(|| format!("{place}: '{line}' is not ACCUMULO=FAMILY"))?;
        let (name, target) = (bytes(name)?, family(target)?);
        if !owned.insert(target.clone()) {
            return Err(format!(
                "{place}: another family goes to '{}' already, and qualifiers of the two could be the same",
                target.escape_ascii()
            ));
        }
        if families.insert(name, FamilyTarget { family: target, is_joined: false }).is_some() {
            return Err(format!("{place}: '{line}' is there twice"));
        }
    }
    if args.groups_as_families {
        for (group, members) in &config.groups {
            let target = family(group).map_err(|why| format!("locality group '{group}': {why}"))?;
            if !owned.insert(target.clone()) {
                return Err(format!("the locality group '{group}' has the name of another family"));
            }
            for member in members {
                let target = FamilyTarget { family: target.clone(), is_joined: true };
                families.entry(member.clone()).or_insert(target);
            }
        }
    }
    let separator = |text: &str, option: &str| match bytes(text)? {
        separator if separator.is_empty() => Err(format!("{option} needs a byte or more")),
        separator => Ok(separator),
    };
    Ok(Mapping {
        families,
        default_family: family(&args.default_family)?,
        separator: separator(&args.separator, "--separator")?,
        visibility: args.visibility,
        visibility_separator: separator(&args.visibility_separator, "--visibility-separator")?,
    })
}

fn family(name: &str) -> Result<Bytes, String> {
    let family = FamilyDescriptor::new(name).map_err(|error| error.message().to_string())?;
    Ok(family.name().clone())
}

/// Files have what iterators were given, and not what they make of it.
pub(crate) fn check_iterators(source: &Source, ignored: bool) -> Result<(), String> {
    let Source::Files(files) = source else { return Ok(()) };
    let iterators = &files.config.iterators;
    if iterators.is_empty() || ignored {
        return Ok(());
    }
    Err(format!(
        "the table has iterators, and files have entries that did not pass through them:\n  {}\nCompact the table with \
         them and remove them, or import by --instance, which reads through them. --ignore-iterators takes what is in the files",
        iterators.join("\n  ")
    ))
}

pub(crate) fn print_source(source: &Source, mapping: &Mapping) {
    match source {
        Source::Files(files) => {
            let origin = files.origin.as_deref().unwrap_or("all rows of a directory");
            println!("source: {origin}; {} files, {} tablets", files.files.len(), files.tablets.len());
            for constraint in files.config.constraints.iter().filter(|one| !one.ends_with(DEFAULT_CONSTRAINT))
            {
                println!("left out: constraint {constraint}");
            }
        }
        Source::Live(live) => {
            let auths = match &live.authorizations[..] {
                [] => "none".to_string(),
                auths => auths.join(","),
            };
            println!("source: {} tablets, scanned with the authorizations {auths}", live.tablets.len());
            println!("source: entries that these authorizations do not show are not imported");
        }
    }
    for (name, target) in &mapping.families {
        let how = if target.is_joined { ", qualifiers joined" } else { "" };
        println!("family '{}' goes to {}{how}", name.escape_ascii(), target.family.escape_ascii());
    }
    let (family, separator) = (&mapping.default_family, &mapping.separator);
    println!("other families go to {} as family{}qualifier", family.escape_ascii(), separator.escape_ascii());
    if mapping.visibility != VisibilityMode::Refuse {
        println!(
            "visibility expressions: {:?}. Every reader of the new table sees every cell",
            mapping.visibility
        );
    }
}

pub(crate) fn print_findings(findings: &Findings) {
    let left = findings.left_out;
    println!(
        "left out: {} delete markers, {} deleted entries, {} old versions, {} entries whose key is there twice",
        left.deletes, left.deleted, left.old_versions, left.doubles
    );
    if findings.with_visibility > 0 {
        let shown = findings.visibilities.iter().take(SHOWN_MAX).map(|one| one.escape_ascii().to_string());
        println!(
            "{} entries have a visibility, {} different ones, such as {}",
            findings.with_visibility,
            findings.visibilities.len(),
            shown.collect::<Vec<_>>().join(" ")
        );
    }
    let families = findings.families.iter().map(|family| family.escape_ascii().to_string());
    println!(
        "entries for families {}; the longest value has {} bytes",
        families.collect::<Vec<_>>().join(","),
        findings.longest_value
    );
}
