//! Changes of one thing of a peer, and the lists that commands are told.

use halcyon_client::{Bytes, Peer, TableName};

use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::value::Value;

/// Tables with their families; no families: all of them.
type Tables = Vec<(TableName, Vec<Bytes>)>;

/// `{"ns:table" => [], "other" => ["f", "g"]}`; of a table that is there twice the last one counts.
pub(super) fn tables_of(value: Value) -> Result<Tables, ShellError> {
    let mut tables = Tables::new();
    for (name, families) in value.map()?.0 {
        let name = table_name(&Value::Text(name.into_bytes()))?;
        let mut named: Vec<Bytes> = Vec::new();
        for family in families.list() {
            let family = Bytes::from(family.bytes()?);
            if !named.contains(&family) {
                named.push(family);
            }
        }
        tables.retain(|(other, _)| *other != name);
        tables.push((name, named));
    }
    Ok(tables)
}

/// `["a", "b"]`, each once.
pub(super) fn namespaces_of(value: Value) -> Result<Vec<String>, ShellError> {
    if value == Value::Nil {
        return Err(ShellError::usage("expected a list of namespaces, found nil; [] is an empty one"));
    }
    let mut namespaces = Vec::new();
    for name in value.list() {
        let name = name.text()?;
        if !namespaces.contains(&name) {
            namespaces.push(name);
        }
    }
    Ok(namespaces)
}

/// What happens to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    Set,
    Append,
    Remove,
}

/// A change of one thing of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    All(bool),
    Serial(bool),
    Bandwidth(i64),
    Namespaces(Edit, Vec<String>),
    ExcludedNamespaces(Edit, Vec<String>),
    Tables(Edit, Tables),
    ExcludedTables(Edit, Tables),
}

impl Change {
    /// The change that a command's name and its next argument say.
    pub(super) fn parse(name: &str, arguments: &mut Arguments) -> Result<Change, ShellError> {
        let edit = match name.split_once('_') {
            Some(("append", _)) => Edit::Append,
            Some(("remove", _)) => Edit::Remove,
            _ => Edit::Set,
        };
        Ok(match name.split_once("_peer_").map_or(name, |(_, what)| what) {
            "replicate_all" => Change::All(arguments.flag("true or false")?),
            "serial" => Change::Serial(arguments.flag("true or false")?),
            "bandwidth" => {
                Change::Bandwidth(arguments.optional().map_or(Ok(0), |bandwidth| bandwidth.integer())?)
            }
            "namespaces" => {
                Change::Namespaces(edit, namespaces_of(arguments.next("the list of namespaces")?)?)
            }
            "exclude_namespaces" => {
                Change::ExcludedNamespaces(edit, namespaces_of(arguments.next("the list of namespaces")?)?)
            }
            "tableCFs" => Change::Tables(edit, tables_of(arguments.next("the map of tables")?)?),
            "exclude_tableCFs" => {
                Change::ExcludedTables(edit, tables_of(arguments.next("the map of tables")?)?)
            }
            other => return Err(arguments.error(format_args!("a peer has no {other}"))),
        })
    }

    /// Changes the peer, or says why that is impossible. The master checks the result.
    pub(super) fn apply(self, peer: &mut Peer) -> Result<(), String> {
        let id = &peer.id;
        match self {
            Change::All(true) => match &peer.tables {
                Some(tables) if !tables.is_empty() => {
                    return Err(format!(
                        "the peer {id} has tables of its own: set_peer_tableCFs '{id}', {{}}"
                    ));
                }
                _ => peer.tables = None,
            },
            Change::All(false) => peer.tables = Some(peer.tables.take().unwrap_or_default()),
            Change::Serial(is_serial) => peer.is_serial = is_serial,
            Change::Bandwidth(bandwidth) => peer.bandwidth = bandwidth,
            Change::Namespaces(edit, named) => edit_namespaces(&mut peer.namespaces, edit, named),
            Change::ExcludedNamespaces(edit, named) => {
                edit_namespaces(&mut peer.excluded_namespaces, edit, named);
            }
            Change::Tables(edit, named) => match &mut peer.tables {
                Some(tables) => return edit_tables(tables, edit, named),
                None if named.is_empty() => {}
                None => {
                    return Err(format!(
                        "the peer {id} gets all tables: set_peer_replicate_all '{id}', false"
                    ));
                }
            },
            Change::ExcludedTables(edit, named) => {
                return edit_tables(&mut peer.excluded_tables, edit, named);
            }
        }
        Ok(())
    }
}

fn edit_namespaces(namespaces: &mut Vec<String>, edit: Edit, named: Vec<String>) {
    match edit {
        Edit::Set => *namespaces = named,
        Edit::Append => {
            for name in named {
                if !namespaces.contains(&name) {
                    namespaces.push(name);
                }
            }
        }
        Edit::Remove => namespaces.retain(|name| !named.contains(name)),
    }
}

/// The rules are those of HBase's client (`ReplicationPeerConfigUtil`): all families and some more are all of
/// them, and none can be taken away from all.
fn edit_tables(tables: &mut Tables, edit: Edit, named: Tables) -> Result<(), String> {
    match edit {
        Edit::Set => *tables = named,
        Edit::Append => {
            for (name, families) in named {
                match tables.iter_mut().find(|(other, _)| *other == name) {
                    None => tables.push((name, families)),
                    Some((_, before)) if before.is_empty() || families.is_empty() => before.clear(),
                    Some((_, before)) => {
                        for family in families {
                            if !before.contains(&family) {
                                before.push(family);
                            }
                        }
                    }
                }
            }
        }
        Edit::Remove => {
            for (name, families) in named {
                let Some((_, before)) = tables.iter_mut().find(|(other, _)| *other == name) else {
                    return Err(format!("the table {name} is not in the peer's list"));
                };
                match (before.is_empty(), families.is_empty()) {
                    (true, false) => {
                        return Err(format!("all families of {name} are in the peer's list; name none"));
                    }
                    (false, true) => {
                        return Err(format!("some families of {name} are in the peer's list; name them"));
                    }
                    _ => before.retain(|family| !families.contains(family)),
                }
                if before.is_empty() {
                    tables.retain(|(other, _)| *other != name);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tables_text;
    use super::*;

    pub(in super::super) fn map(text: &str) -> Vec<(TableName, Vec<Bytes>)> {
        tables_of(Arguments::typed(&format!("x {text}")).next("a map").unwrap()).unwrap()
    }

    pub(in super::super) fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_command_says_what_changes() {
        let change = |line: &str| {
            let name = line.split(' ').next().unwrap_or_default();
            Change::parse(name, &mut Arguments::typed(line))
        };
        let tables = || map("{'t' => ['f']}");
        for (line, expected) in [
            ("set_peer_replicate_all false", Change::All(false)),
            ("set_peer_serial true", Change::Serial(true)),
            ("set_peer_bandwidth", Change::Bandwidth(0)),
            ("set_peer_bandwidth 1048576", Change::Bandwidth(1 << 20)),
            ("set_peer_namespaces ['a', 'a']", Change::Namespaces(Edit::Set, strings(&["a"]))),
            ("append_peer_namespaces 'a'", Change::Namespaces(Edit::Append, strings(&["a"]))),
            ("remove_peer_exclude_namespaces []", Change::ExcludedNamespaces(Edit::Remove, strings(&[]))),
            ("set_peer_tableCFs {'t' => 'f'}", Change::Tables(Edit::Set, tables())),
            ("append_peer_tableCFs 't' => ['f', 'f']", Change::Tables(Edit::Append, tables())),
            ("remove_peer_exclude_tableCFs {'t' => ['f']}", Change::ExcludedTables(Edit::Remove, tables())),
        ] {
            assert_eq!(change(line).unwrap(), expected, "{line}");
        }
        for bad in [
            "set_peer_replicate_all",
            "set_peer_serial 5",
            "set_peer_bandwidth 'fast'",
            "set_peer_namespaces",
            "set_peer_namespaces nil",
            "set_peer_namespaces {'a' => []}",
            "set_peer_tableCFs ['t']",
            "set_peer_tableCFs {'t' => {}}",
        ] {
            assert!(change(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_change_keeps_the_rest() {
        let mut peer = Peer { bandwidth: 5, is_serial: true, ..Peer::new("1", "h:1:/b") };
        let tables = |edit, text: &str| Change::Tables(edit, map(text));
        assert!(tables(Edit::Set, "{'t' => []}").apply(&mut peer).unwrap_err().contains("gets all tables"));
        tables(Edit::Set, "{}").apply(&mut peer).unwrap();
        assert_eq!(peer.tables, None);
        Change::All(false).apply(&mut peer).unwrap();
        tables(Edit::Set, "{'t' => ['f']}").apply(&mut peer).unwrap();
        assert!(Change::All(true).apply(&mut peer).unwrap_err().contains("tables of its own"));
        Change::Namespaces(Edit::Append, strings(&["a", "b"])).apply(&mut peer).unwrap();
        Change::Namespaces(Edit::Append, strings(&["b", "c"])).apply(&mut peer).unwrap();
        Change::Namespaces(Edit::Remove, strings(&["a", "z"])).apply(&mut peer).unwrap();
        assert_eq!(peer.namespaces, ["b", "c"]);
        tables(Edit::Set, "{}").apply(&mut peer).unwrap();
        Change::All(true).apply(&mut peer).unwrap();
        Change::ExcludedTables(Edit::Append, map("{'u' => []}")).apply(&mut peer).unwrap();
        Change::Bandwidth(7).apply(&mut peer).unwrap();
        Change::Serial(false).apply(&mut peer).unwrap();
        let expected = Peer {
            bandwidth: 7,
            namespaces: strings(&["b", "c"]),
            excluded_tables: map("{'u' => []}"),
            ..Peer::new("1", "h:1:/b")
        };
        assert_eq!(peer, expected);
    }

    #[test]
    fn tables_are_added_and_taken_away() {
        let edited = |before: &str, edit: Edit, named: &str| {
            let mut tables = map(before);
            edit_tables(&mut tables, edit, map(named)).map(|()| tables_text(&tables))
        };
        let append = |before, named| edited(before, Edit::Append, named).unwrap();
        assert_eq!(append("{}", "{'n:t' => ['g', 'f'], 'a' => []}"), "default.a;n.t:f,g");
        assert_eq!(append("{'t' => ['f']}", "{'t' => ['g', 'f']}"), "default.t:f,g");
        assert_eq!(append("{'t' => ['f']}", "{'t' => []}"), "default.t");
        assert_eq!(append("{'t' => []}", "{'t' => ['f']}"), "default.t");
        let remove = |before, named| edited(before, Edit::Remove, named);
        assert_eq!(remove("{'t' => ['f', 'g']}", "{'t' => ['f', 'h']}").unwrap(), "default.t:g");
        assert_eq!(remove("{'t' => ['f'], 'u' => []}", "{'t' => ['f']}").unwrap(), "default.u");
        assert_eq!(remove("{'t' => []}", "{'t' => []}").unwrap(), "");
        assert!(remove("{'t' => []}", "{'t' => ['f']}").unwrap_err().contains("name none"));
        assert!(remove("{'t' => ['f']}", "{'t' => []}").unwrap_err().contains("name them"));
        assert!(remove("{'t' => []}", "{'u' => []}").unwrap_err().contains("is not in"));
    }
}
