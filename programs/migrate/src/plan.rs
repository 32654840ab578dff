//! What can be said of tables before anything is changed. Nothing here talks to a cluster.

use bytes::Bytes;
use halcyon_client::TableDescriptor;
use halcyon_schema::{Durability, Endpoint, FamilyDescriptor, TableName};

use crate::side::with_scope;
use crate::state::{Range, Scope};

const MOB: &str = "IS_MOB";

/// What the user gives up for a table to move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drops {
    pub(crate) coprocessors: bool,
    pub(crate) mob: bool,
}

/// The descriptor of a table at the target, or every reason why it cannot move.
pub(crate) fn target_descriptor(
    source: &TableDescriptor,
    drops: Drops,
) -> Result<TableDescriptor, Vec<String>> {
    let name = source.name();
    let mut reasons = Vec::new();
    if name.is_system() {
        reasons.push(format!("{name} is a system table; each cluster has its own"));
    }
    reasons.extend(without_wal("source", source));
    let mut target = source.clone();
    for (key, class) in foreign_coprocessors(source) {
        if drops.coprocessors {
            target = target.without(&key);
        } else {
            reasons.push(format!(
                "{name} has the coprocessor {class}, which Halcyon cannot load (--drop-coprocessors creates the table \
                 without it)"
            ));
        }
    }
    for family in source.families() {
        let text = family.name_str();
        if family.new_version_behavior() {
            reasons.push(format!(
                "family {text} of {name} has NEW_VERSION_BEHAVIOR: its cells depend on the order of writing, which a scan \
                 does not show"
            ));
        }
        let is_stored_as_others = family.is_mob() && drops.mob;
        let moved = if is_stored_as_others { family.clone().with(MOB, "false") } else { family.clone() };
        target = target.with_family(with_scope(&moved, 1));
    }
    if let Err(error) = target.check() {
        reasons.push(error.message().to_string());
    }
    match reasons.is_empty() {
        true => Ok(target),
        false => Err(reasons),
    }
}

/// Nothing of a table without a WAL is replicated, and what is copied into one is gone when its server dies.
fn without_wal(side: &str, table: &TableDescriptor) -> Option<String> {
    (table.durability() == Some(Durability::SkipWal)).then(|| {
        format!(
            "{} of the {side} has DURABILITY SKIP_WAL: its edits are in no WAL, so no peer gets them; alter it first",
            table.name()
        )
    })
}

/// Attributes of coprocessors that are not built in, and their classes.
fn foreign_coprocessors(table: &TableDescriptor) -> Vec<(Bytes, String)> {
    let of_attribute = |(key, _): (&Bytes, &Bytes)| {
        let alone = TableDescriptor::new(table.name().clone()).with(key, table.attribute(key)?);
        let class = alone.coprocessor_classes().next()?;
        Endpoint::of_class(&class).is_none().then(|| (key.clone(), class))
    };
    table.attributes().filter_map(of_attribute).collect()
}

/// Why a table that the target has already cannot take the rows; `None`: it can.
pub(crate) fn mismatch(wanted: &TableDescriptor, found: &TableDescriptor) -> Option<String> {
    let names = |table: &TableDescriptor| -> Vec<String> {
        table.families().iter().map(|family| family.name_str().into_owned()).collect()
    };
    let (name, wanted_names, found_names) = (wanted.name(), names(wanted), names(found));
    if wanted_names != found_names {
        return Some(format!(
            "{name} exists at the target with the families {}; the source has {}",
            found_names.join(", "),
            wanted_names.join(", ")
        ));
    }
    if let Some(reason) = without_wal("target", found) {
        return Some(reason);
    }
    let fewer = |family: &&FamilyDescriptor| {
        found.family(family.name()).is_some_and(|there| there.versions() < family.versions())
    };
    wanted
        .families()
        .iter()
        .find(fewer)
        .map(|family| format!("family {} of {name} keeps fewer VERSIONS at the target", family.name_str()))
}

/// `REPLICATION_SCOPE` of each family.
pub(crate) fn scopes(table: &TableDescriptor) -> Vec<Scope> {
    let scope =
        |family: &FamilyDescriptor| Scope { family: family.name_str().into_owned(), scope: family.scope() };
    table.families().iter().map(scope).collect()
}

/// A table with these scopes; families that are not named stay as they are.
pub(crate) fn with_scopes(table: TableDescriptor, scopes: &[Scope]) -> TableDescriptor {
    let mut changed = table.clone();
    for family in table.families() {
        if let Some(scope) = scopes.iter().find(|scope| scope.family == family.name_str()) {
            changed = changed.with_family(with_scope(family, scope.scope));
        }
    }
    changed
}

/// A table all of whose families go to peers.
pub(crate) fn with_all_scopes(table: TableDescriptor) -> TableDescriptor {
    let mut changed = table.clone();
    for family in table.families() {
        changed = changed.with_family(with_scope(family, 1));
    }
    changed
}

/// The families of a table whose edits no peer gets.
pub(crate) fn without_scope(table: &TableDescriptor) -> Vec<String> {
    let without = table.families().iter().filter(|family| family.scope() != 1);
    without.map(|family| family.name_str().into_owned()).collect()
}

/// What a table's scopes become when the migration ends. `peers` are the other peers of the side that get the table, and those
/// of `before` were there when the migration began. `before` is `None` of a table that the migration has made; then `source`
/// has the scopes at the source. Peers that came later, and peers of a new table, rely on the scopes as they are.
pub(crate) fn final_scopes<'a>(
    before: Option<&'a [Scope]>,
    source: &'a [Scope],
    peers: &[String],
    peers_before: &[String],
) -> Option<&'a [Scope]> {
    match before {
        Some(before) if peers.iter().all(|peer| peers_before.contains(peer)) => Some(before),
        None if peers.is_empty() => Some(source),
        _ => None,
    }
}

/// A range for each region, from where each begins.
pub(crate) fn ranges(starts: &[Bytes]) -> Vec<Range> {
    let mut edges: Vec<Bytes> = starts.iter().filter(|start| !start.is_empty()).cloned().collect();
    edges.sort();
    edges.dedup();
    let firsts = std::iter::once(Bytes::new()).chain(edges.iter().cloned());
    let ends = edges.iter().cloned().chain(std::iter::once(Bytes::new()));
    firsts.zip(ends).map(|(start, end)| Range::new(start, end)).collect()
}

/// Names of tables that the user gave, each once.
pub(crate) fn table_names(texts: &[String]) -> Result<Vec<TableName>, String> {
    let mut names: Vec<TableName> = Vec::new();
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let name =
            TableName::parse(text.as_bytes()).map_err(|error| format!("'{text}' names no table: {error}"))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err("no tables are named: add --tables NAME,...".to_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(families: &[FamilyDescriptor]) -> TableDescriptor {
        let name = TableName::parse(b"n:t").unwrap();
        families.iter().fold(TableDescriptor::new(name), |table, family| table.with_family(family.clone()))
    }

    fn family(name: &str) -> FamilyDescriptor {
        FamilyDescriptor::new(name).unwrap()
    }

    #[test]
    fn the_target_gets_the_same_table_with_scopes() {
        let source = table(&[family("a").with("VERSIONS", "3"), family("b").with("REPLICATION_SCOPE", "1")]);
        let source = source.with("MAX_FILESIZE", "10737418240");
        let target = target_descriptor(&source, Drops::default()).unwrap();
        assert_eq!(target.attribute(b"MAX_FILESIZE"), source.attribute(b"MAX_FILESIZE"));
        assert!(target.families().iter().all(|family| family.scope() == 1));
        assert_eq!(target.family(b"a").unwrap().versions(), 3);
        assert_eq!(with_scopes(target.clone(), &scopes(&source)).family(b"a").unwrap().scope(), 0);
        assert_eq!(with_all_scopes(source.clone()), target);
        assert_eq!(mismatch(&target, &target), None);
    }

    #[test]
    fn each_reason_is_named() {
        let source =
            table(&[family("m").with("IS_MOB", "true"), family("n").with("NEW_VERSION_BEHAVIOR", "true")])
                .with("coprocessor$1", "|org.x.Index|1|")
                .with("coprocessor$2", "|org.apache.hadoop.hbase.coprocessor.AggregateImplementation||");
        let reasons = target_descriptor(&source, Drops::default()).unwrap_err().join("\n");
        for part in ["org.x.Index", "NEW_VERSION_BEHAVIOR"] {
            assert!(reasons.contains(part), "{part}: {reasons}");
        }
        let source = table(&[family("m").with("IS_MOB", "true")]).with("coprocessor$1", "|org.x.Index|1|");
        let drops = Drops { coprocessors: true, mob: true };
        let target = target_descriptor(&source, drops).unwrap();
        assert!(target.attribute(b"coprocessor$1").is_none() && !target.family(b"m").unwrap().is_mob());
        let kept = target_descriptor(&source, Drops { mob: false, ..drops }).unwrap();
        assert!(kept.family(b"m").unwrap().is_mob());
    }

    #[test]
    fn a_table_at_the_target_has_to_fit() {
        let wanted = table(&[family("a").with("VERSIONS", "3")]);
        let fewer = mismatch(&wanted, &table(&[family("a")])).unwrap();
        assert!(fewer.contains("fewer VERSIONS"), "{fewer}");
        let other = mismatch(&wanted, &table(&[family("b")])).unwrap();
        assert!(other.contains("families b; the source has a"), "{other}");
    }

    #[test]
    fn peers_that_rely_on_a_scope_keep_it() {
        let scope = |scope| vec![Scope { family: "f".to_string(), scope }];
        let (zero, one) = (scope(0), scope(1));
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (dr, none) = (names(&["dr"]), names(&[]));
        // Each side has its own.
        assert_eq!(final_scopes(Some(&one), &zero, &dr, &dr), Some(&one[..]));
        assert_eq!(final_scopes(Some(&zero), &one, &none, &none), Some(&zero[..]));
        assert_eq!(final_scopes(Some(&zero), &zero, &dr, &dr), Some(&zero[..]), "as it was before");
        assert_eq!(final_scopes(Some(&zero), &zero, &dr, &none), None, "the peer came later");
        // A table that the migration has made.
        assert_eq!(final_scopes(None, &zero, &none, &none), Some(&zero[..]));
        assert_eq!(final_scopes(None, &zero, &dr, &dr), None);
    }

    #[test]
    fn a_table_without_a_wal_does_not_move() {
        let lossy = table(&[family("a")]).with("DURABILITY", "SKIP_WAL");
        let reasons = target_descriptor(&lossy, Drops::default()).unwrap_err();
        assert!(reasons[0].contains("n:t of the source has DURABILITY SKIP_WAL"), "{reasons:?}");
        let wanted = target_descriptor(&table(&[family("a")]), Drops::default()).unwrap();
        assert!(mismatch(&wanted, &lossy).unwrap().contains("of the target has DURABILITY SKIP_WAL"));
        assert_eq!(without_scope(&lossy), ["a"]);
        assert!(without_scope(&wanted).is_empty());
    }

    #[test]
    fn ranges_cover_the_table() {
        let starts = ["", "m", "d"].map(|start| Bytes::copy_from_slice(start.as_bytes()));
        let shown: Vec<_> =
            ranges(&starts).iter().map(|range| (range.start.clone(), range.end.clone())).collect();
        let pair = |start: &str, end: &str| {
            (Bytes::copy_from_slice(start.as_bytes()), Bytes::copy_from_slice(end.as_bytes()))
        };
        assert_eq!(shown, [pair("", "d"), pair("d", "m"), pair("m", "")]);
        assert_eq!(ranges(&[]).len(), 1);
        let names = table_names(&["t".to_string(), " n:u".to_string(), "t".to_string()]).unwrap();
        assert_eq!(names.len(), 2);
        assert!(table_names(&[]).unwrap_err().contains("--tables"));
        assert!(table_names(&["a:b:c".to_string()]).unwrap_err().contains("names no table"));
    }
}
