//! Replication peers: the clusters that get this one's edits.

mod changes;

use std::collections::BTreeMap;

use changes::{Change, namespaces_of, tables_of};
use halcyon_client::{Bytes, ClusterAddress, Peer, TableName};

use super::{Context, pattern, tables};
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::print::binary;
use crate::value::{Map, Value};

/// ZooKeeper's port where a server names none.
const ZOOKEEPER_PORT: &str = "2181";

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "add_peer" => add(context, arguments).await?,
        "remove_peer" => {
            let id = arguments.only_text("the peer")?;
            context.admin().await?.remove_peer(&id).await?;
        }
        "enable_peer" => {
            let id = arguments.only_text("the peer")?;
            context.admin().await?.enable_peer(&id).await?;
        }
        "disable_peer" => {
            let id = arguments.only_text("the peer")?;
            context.admin().await?.disable_peer(&id).await?;
        }
        "list_peers" => list(context, arguments).await?,
        "list_peer_configs" => list_configs(context, arguments).await?,
        "get_peer_config" => {
            let id = arguments.only_text("the peer")?;
            let rows = config_rows(&context.admin().await?.peer(&id).await?);
            context.printer.table(&["NAME", "VALUE"], &rows)?;
        }
        "show_peer_tableCFs" => {
            let id = arguments.only_text("the peer")?;
            let peer = context.admin().await?.peer(&id).await?;
            context.printer.value("table_cfs", tables_text(peer.tables.as_deref().unwrap_or_default()))?;
        }
        "update_peer_config" => update(context, arguments).await?,
        "set_peer_replicate_all"
        | "set_peer_serial"
        | "set_peer_bandwidth"
        | "set_peer_namespaces"
        | "append_peer_namespaces"
        | "remove_peer_namespaces"
        | "set_peer_exclude_namespaces"
        | "append_peer_exclude_namespaces"
        | "remove_peer_exclude_namespaces"
        | "set_peer_tableCFs"
        | "append_peer_tableCFs"
        | "remove_peer_tableCFs"
        | "set_peer_exclude_tableCFs"
        | "append_peer_exclude_tableCFs"
        | "remove_peer_exclude_tableCFs" => change(context, name, arguments).await?,
        "list_replicated_tables" => list_replicated(context, arguments).await?,
        "enable_table_replication" => {
            let table = arguments.table()?;
            arguments.finish()?;
            context.admin().await?.enable_table_replication(&table).await?;
            context.printer.note(format_args!("The replication of table '{table}' successfully enabled"))?;
        }
        "disable_table_replication" => {
            let table = arguments.table()?;
            arguments.finish()?;
            context.admin().await?.disable_table_replication(&table).await?;
            context.printer.note(format_args!("The replication of table '{table}' successfully disabled"))?;
        }
        "peer_modification_switch" => {
            let on = arguments.flag("true or false")?;
            let drain = arguments.optional().map_or(Ok(false), |drain| drain.flag())?;
            arguments.finish()?;
            let before = context.admin().await?.set_peer_modification(on, drain).await?;
            context.printer.note(format_args!("Previous peer modification state : {before}"))?;
            context.printer.object(&serde_json::json!({ "previous": before }))?;
        }
        "peer_modification_enabled" => {
            arguments.finish()?;
            let on = context.admin().await?.is_peer_modification_enabled().await?;
            context.printer.value("enabled", on)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn add(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let mut peer = new_peer(arguments)?;
    let admin = context.admin().await?;
    if peer.cluster_key.is_empty() {
        peer.cluster_key = own_key(admin.cluster().address());
    }
    Ok(admin.add_peer(&peer).await?)
}

/// The peer that `add_peer` is told. Its key is empty if only an endpoint was typed.
fn new_peer(arguments: &mut Arguments) -> Result<Peer, ShellError> {
    let id = arguments.text("the peer")?;
    let mut options = arguments.options()?;
    let plain_key = arguments.optional();
    arguments.finish()?;
    // nil is as good as nothing
    options.0.retain(|(_, value)| *value != Value::Nil);
    let key = match (plain_key, options.take("CLUSTER_KEY")) {
        (Some(_), Some(_)) => return Err(arguments.error("there are two cluster keys")),
        (plain_key, key) => plain_key.or(key).map(|key| key.text()).transpose()?,
    };
    let endpoint_class = options.take("ENDPOINT_CLASSNAME").map(|class| class.text()).transpose()?;
    if key.is_none() && endpoint_class.is_none() {
        return Err(arguments.error("CLUSTER_KEY or ENDPOINT_CLASSNAME is missing"));
    }
    let named_tables = options.take("TABLE_CFS").map(tables_of).transpose()?;
    let named_namespaces = options.take("NAMESPACES").map(namespaces_of).transpose()?;
    let is_enabled = match options.take("STATE") {
        None => true,
        Some(state) => match state.text()?.to_ascii_uppercase().as_str() {
            "ENABLED" => true,
            "DISABLED" => false,
            other => {
                return Err(arguments.error(format_args!("STATE '{other}' is neither ENABLED nor DISABLED")));
            }
        },
    };
    let gets_all = named_tables.is_none() && named_namespaces.is_none();
    let peer = Peer {
        is_enabled,
        tables: (!gets_all).then(|| named_tables.unwrap_or_default()),
        namespaces: named_namespaces.unwrap_or_default(),
        endpoint_class,
        configuration: tables::nested(&mut options, "CONFIG")?.into_iter().collect(),
        data: take_data(&mut options)?,
        is_serial: options.take("SERIAL").map_or(Ok(false), |serial| serial.flag())?,
        remote_wal_dir: options.take("REMOTE_WAL_DIR").map(|dir| dir.text()).transpose()?,
        ..Peer::new(&id, key.unwrap_or_default().trim())
    };
    options.finish("add_peer")?;
    Ok(peer)
}

/// The key of the cluster that the shell is connected to: HBase's shell gives it to a peer that needs none.
/// A registry does not tell it; it is empty then.
fn own_key(address: &ClusterAddress) -> String {
    let ClusterAddress::ZooKeeper { quorum, base } = address else { return String::new() };
    let server = |text: &String| {
        let (host, port) = text.rsplit_once(':').unwrap_or((text.as_str(), ZOOKEEPER_PORT));
        (host.to_string(), port.to_string())
    };
    let servers: Vec<(String, String)> = quorum.iter().map(server).collect();
    let Some((_, port)) = servers.first() else { return String::new() };
    let hosts: Vec<String> = match servers.iter().all(|(_, other)| other == port) {
        true => servers.iter().map(|(host, _)| host.clone()).collect(),
        false => servers.iter().map(|(host, port)| format!("{host}:{port}")).collect(),
    };
    format!("{}:{port}:{base}", hosts.join(","))
}

/// `DATA => {...}`. A number is eight bytes, as HBase's shell writes it.
fn take_data(options: &mut Map) -> Result<BTreeMap<Bytes, Bytes>, ShellError> {
    let Some(pairs) = options.take("DATA") else { return Ok(BTreeMap::new()) };
    let mut data = BTreeMap::new();
    for (key, value) in pairs.map()?.0 {
        let value = match value {
            Value::Integer(number) => Bytes::copy_from_slice(&number.to_be_bytes()),
            value => Bytes::from(value.bytes()?),
        };
        data.insert(Bytes::from(key), value);
    }
    Ok(data)
}

/// Adds to a peer's settings and data, or replaces some of them.
async fn update(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let id = arguments.text("the peer")?;
    let mut options = arguments.options()?;
    let configuration = tables::nested(&mut options, "CONFIG")?;
    let data = take_data(&mut options)?;
    options.finish("update_peer_config")?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let mut peer = admin.peer(&id).await?;
    peer.configuration.extend(configuration);
    peer.data.extend(data);
    Ok(admin.update_peer(&peer).await?)
}

/// Reads the peer, changes it and writes it: what the change does not name stays.
async fn change(context: &mut Context, name: &str, arguments: &mut Arguments) -> Result<(), ShellError> {
    let id = arguments.text("the peer")?;
    let change = Change::parse(name, arguments)?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let mut peer = admin.peer(&id).await?;
    change.apply(&mut peer).map_err(|why| arguments.error(why))?;
    Ok(admin.update_peer(&peer).await?)
}

/// `ns.table:f,g;default.other`, as HBase prints it; sorted.
fn tables_text(tables: &[(TableName, Vec<Bytes>)]) -> String {
    let mut texts = Vec::new();
    for (name, families) in tables {
        let mut families: Vec<String> = families.iter().map(|family| binary(family)).collect();
        families.sort();
        let separator = if families.is_empty() { "" } else { ":" };
        let families = families.join(",");
        texts.push(format!("{}.{}{separator}{families}", name.namespace(), name.qualifier()));
    }
    texts.sort();
    texts.join(";")
}

/// Names between semicolons, sorted.
fn namespaces_text(namespaces: &[String]) -> String {
    let mut names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.join(";")
}

/// Marks a list of what is left out.
fn but(list: String) -> String {
    match list.is_empty() {
        true => list,
        false => format!("!{list}"),
    }
}

async fn sorted_peers(context: &mut Context, arguments: &mut Arguments) -> Result<Vec<Peer>, ShellError> {
    arguments.finish()?;
    let mut peers = context.admin().await?.peers().await?;
    peers.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(peers)
}

async fn list(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let rows: Vec<_> = sorted_peers(context, arguments).await?.iter().map(peer_row).collect();
    let columns = [
        "PEER_ID",
        "CLUSTER_KEY",
        "ENDPOINT_CLASSNAME",
        "STATE",
        "REPLICATE_ALL",
        "NAMESPACES",
        "TABLE_CFS",
        "BANDWIDTH",
        "SERIAL",
    ];
    Ok(context.printer.table(&columns, &rows)?)
}

fn peer_row(peer: &Peer) -> Vec<String> {
    let (namespaces, tables) = match &peer.tables {
        Some(tables) => (namespaces_text(&peer.namespaces), tables_text(tables)),
        None => (but(namespaces_text(&peer.excluded_namespaces)), but(tables_text(&peer.excluded_tables))),
    };
    let state = if peer.is_enabled { "ENABLED" } else { "DISABLED" };
    vec![
        peer.id.clone(),
        peer.cluster_key.clone(),
        peer.endpoint_class.clone().unwrap_or_default(),
        state.to_string(),
        peer.tables.is_none().to_string(),
        namespaces,
        tables,
        peer.bandwidth.to_string(),
        peer.is_serial.to_string(),
    ]
}

async fn list_configs(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let mut rows = Vec::new();
    for peer in sorted_peers(context, arguments).await? {
        for mut row in config_rows(&peer) {
            row.insert(0, peer.id.clone());
            rows.push(row);
        }
    }
    Ok(context.printer.table(&["PEER_ID", "NAME", "VALUE"], &rows)?)
}

/// Where a peer is, and its settings.
fn config_rows(peer: &Peer) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["Cluster Key".to_string(), peer.cluster_key.clone()]];
    let more =
        [("Replication Endpoint", &peer.endpoint_class), ("Remote WAL Directory", &peer.remote_wal_dir)];
    for (name, value) in more {
        rows.extend(value.iter().map(|value| vec![name.to_string(), value.clone()]));
    }
    rows.extend(peer.configuration.iter().map(|(name, value)| vec![name.clone(), value.clone()]));
    rows
}

async fn list_replicated(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let pattern = pattern(arguments)?;
    arguments.finish()?;
    let mut rows = Vec::new();
    for table in context.admin().await?.descriptors(pattern.as_deref(), false).await? {
        for family in table.families() {
            let kind = match family.scope() {
                0 => continue,
                1 => "GLOBAL",
                _ => "unknown",
            };
            rows.push(vec![format!("{}:{}", table.name(), binary(family.name())), kind.to_string()]);
        }
    }
    rows.sort();
    Ok(context.printer.table(&["TABLE:COLUMNFAMILY", "ReplicationType"], &rows)?)
}

#[cfg(test)]
mod tests {
    use super::changes::tests::{map, strings};
    use super::*;

    #[test]
    fn add_peer_understands_all_options() {
        let peer = |line: &str| new_peer(&mut Arguments::typed(line)).unwrap();
        assert_eq!(peer("add_peer '1', 'h:2181:/b'"), Peer::new("1", "h:2181:/b"));
        assert_eq!(
            peer("add_peer 1, CLUSTER_KEY => 'h:2181:/b', CONFIG => nil"),
            Peer::new("1", "h:2181:/b")
        );
        let found = peer(
            "add_peer '1', CLUSTER_KEY => 'h:2181:/b', ENDPOINT_CLASSNAME => 'a.B', STATE => 'DISABLED', \
             NAMESPACES => ['n'], TABLE_CFS => {'t' => [], 'm:u' => ['f', 'g']}, SERIAL => true, \
             CONFIG => {'k' => 5}, DATA => {'a' => 1, 'b' => 'c'}, REMOTE_WAL_DIR => '/w'",
        );
        let number = Bytes::from_static(b"\0\0\0\0\0\0\0\x01");
        let expected = Peer {
            is_enabled: false,
            tables: Some(map("{'t' => [], 'm:u' => ['f', 'g']}")),
            namespaces: strings(&["n"]),
            endpoint_class: Some("a.B".to_string()),
            configuration: BTreeMap::from([("k".to_string(), "5".to_string())]),
            data: BTreeMap::from([(Bytes::from("a"), number), (Bytes::from("b"), Bytes::from("c"))]),
            is_serial: true,
            remote_wal_dir: Some("/w".to_string()),
            ..Peer::new("1", "h:2181:/b")
        };
        assert_eq!(found, expected);
        assert_eq!(peer("add_peer '1', ENDPOINT_CLASSNAME => 'a.B'").cluster_key, "");
        assert_eq!(peer("add_peer '1', 'h:1:/b', {NAMESPACES => []}").tables, Some(Vec::new()));
    }

    #[test]
    fn add_peer_ignores_nothing() {
        for bad in [
            "add_peer",
            "add_peer '1'",
            "add_peer '1', {}",
            "add_peer '1', 'h:1:/b', 't:f'",
            "add_peer '1', 'h:1:/b', {CLUSTER_KEY => 'h:1:/b'}",
            "add_peer '1', CLUSTER_KEY => 'h:1:/b', STATE => 'OFF'",
            "add_peer '1', CLUSTER_KEY => 'h:1:/b', TABLE_CFS => 't'",
            "add_peer '1', CLUSTER_KEY => 'h:1:/b', TABLE_CFS => {'a:b:c' => []}",
            "add_peer '1', CLUSTER_KEY => 'h:1:/b', CONFIG => ['k']",
            "add_peer '1', CLUSTER_KEY => 'h:1:/b', CLUSTERKEY => 'x'",
        ] {
            let error = new_peer(&mut Arguments::typed(bad)).unwrap_err();
            assert!(matches!(error, ShellError::Usage(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn a_cluster_names_itself() {
        let key = |quorum: &[&str]| {
            own_key(&ClusterAddress::ZooKeeper { quorum: strings(quorum), base: "/hbase".to_string() })
        };
        assert_eq!(key(&["h:2181"]), "h:2181:/hbase");
        assert_eq!(key(&["a:2182", "b:2182"]), "a,b:2182:/hbase");
        assert_eq!(key(&["a:1", "b"]), "a:1,b:2181:1:/hbase");
        assert_eq!(key(&[]), "");
        assert_eq!(own_key(&ClusterAddress::registry(["h:16000"])), "");
    }

    #[test]
    fn a_row_shows_what_is_sent_or_left_out() {
        let all = Peer {
            excluded_namespaces: strings(&["b", "a"]),
            excluded_tables: map("{'t' => []}"),
            ..Peer::new("1", "h:1:/b")
        };
        let row = ["1", "h:1:/b", "", "ENABLED", "true", "!a;b", "!default.t", "0", "false"];
        assert_eq!(peer_row(&all), row);
        let some = Peer { is_enabled: false, tables: Some(map("{'n:t' => ['f']}")), ..all };
        let row = ["1", "h:1:/b", "", "DISABLED", "false", "", "n.t:f", "0", "false"];
        assert_eq!(peer_row(&some), row);
        let peer = Peer {
            endpoint_class: Some("a.B".to_string()),
            configuration: BTreeMap::from([("k".to_string(), "v".to_string())]),
            ..some
        };
        let rows = [["Cluster Key", "h:1:/b"], ["Replication Endpoint", "a.B"], ["k", "v"]];
        assert_eq!(config_rows(&peer), rows);
    }
}
