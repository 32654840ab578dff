//! Region server groups: each table is on the servers of one group (HBase: `hbase-rsgroup`).
//!
//! ```text
//! service/groups.rs ─> admin.rs  the requests   ─┐
//! procedures        ─> tables.rs new tables      ├─> store.rs  rows of hbase:rsgroup, then memory, then znodes
//!                                                ┘
//! placement.rs, balancer.rs ─> scope.rs   which servers a table may be on
//! moves.rs   regions that are on servers of other groups
//! ```
//!
//! A group has servers by host and port, whether they are alive or not, and tables. All other servers and tables are those of
//! the group `default`. So a server that joins is in `default`, unless its address is in a group.

mod admin;
mod moves;
mod scope;
mod store;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Mutex, RwLock};
use halcyon_proto::pb;
use halcyon_schema::{ServerName, TableName};

use crate::state::MasterState;

pub(crate) use admin::{
    ServersAndTables, add, balance, forget_servers, move_servers, move_servers_and_tables, move_tables,
    remove, remove_servers, rename, set_configuration,
};
pub(crate) use moves::{busy_regions, move_misplaced, moves_of_table, with_servers};
pub(crate) use scope::Scope;
pub(crate) use store::{load_at_start, load_late};
pub(crate) use tables::{adopt, check_namespace, check_new_table, forget, group_attribute};

/// The group of what is in no other.
pub(crate) const DEFAULT: &str = "default";
/// The attribute of a table, and of a namespace for its new tables, that names the group.
pub(crate) const ATTRIBUTE: &str = "hbase.rsgroup.name";

/// Whether there are groups, and what happens when all servers of one are dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether `hbase.coprocessor.master.classes` names `RSGroupAdminEndpoint`. False.
    pub enabled: bool,
    /// Whether tables of a group without a live server go to servers of `default`, or of any group if that has none
    /// (`hbase.rsgroup.fallback.enable`). False: their regions wait.
    pub fallback: bool,
}

/// Names the groups of new tables (`hbase.rsgroup.table.mapping.script`). *Thread safety*: from any thread; may block.
#[derive(Clone, Default)]
pub struct GroupMapping(Option<Arc<Mapping>>);

type Mapping = dyn Fn(&TableName) -> Option<String> + Send + Sync;

impl GroupMapping {
    /// `None` is no answer. A group that is not there is none either.
    pub fn by(mapping: impl Fn(&TableName) -> Option<String> + Send + Sync + 'static) -> GroupMapping {
        GroupMapping(Some(Arc::new(mapping)))
    }

    fn group_of(&self, table: &TableName) -> Option<String> {
        self.0.as_ref().and_then(|mapping| mapping(table))
    }
}

impl fmt::Debug for GroupMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupMapping").field(&self.0.is_some()).finish()
    }
}

/// Host and port of a server, in each of its lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl Address {
    pub(crate) fn of(server: &ServerName) -> Address {
        Address { host: server.host.clone(), port: server.port }
    }

    pub(crate) fn from_pb(server: &pb::ServerName) -> Result<Address> {
        Ok(Address::of(&ServerName::from_pb(server)?))
    }

    fn to_pb(&self) -> pb::ServerName {
        ServerName::new(self.host.clone(), self.port, -1).to_pb()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) servers: BTreeSet<Address>,
    pub(crate) tables: BTreeSet<TableName>,
    pub(crate) configuration: BTreeMap<String, String>,
}

impl Group {
    fn to_pb(&self, name: &str) -> pb::RsGroupInfo {
        let pair = |(name, value): (&String, &String)| pb::NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        pb::RsGroupInfo {
            name: name.to_string(),
            tables: self.tables.iter().map(TableName::to_pb).collect(),
            servers: self.servers.iter().map(Address::to_pb).collect(),
            configuration: self.configuration.iter().map(pair).collect(),
        }
    }

    fn from_pb(info: &pb::RsGroupInfo) -> Result<Group> {
        let pair = |pair: &pb::NameStringPair| (pair.name.clone(), pair.value.clone());
        Ok(Group {
            servers: info.servers.iter().map(Address::from_pb).collect::<Result<_>>()?,
            tables: info.tables.iter().map(TableName::from_pb).collect::<Result<_>>()?,
            configuration: info.configuration.iter().map(pair).collect(),
        })
    }
}

/// All groups but `default`.
///
/// # Invariants
/// No server and no table is in two groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) by_name: BTreeMap<String, Group>,
}

impl Groups {
    pub(crate) fn of_table(&self, table: &TableName) -> &str {
        let found = self.by_name.iter().find(|(_, group)| group.tables.contains(table));
        found.map_or(DEFAULT, |(name, _)| name)
    }

    /// The group that has the address; `None`: it is in `default` if a server is alive there.
    fn with_server(&self, server: &Address) -> Option<&str> {
        let found = self.by_name.iter().find(|(_, group)| group.servers.contains(server));
        found.map(|(name, _)| name.as_str())
    }

    fn move_servers(&mut self, servers: &BTreeSet<Address>, target: &str) {
        for group in self.by_name.values_mut() {
            group.servers.retain(|server| !servers.contains(server));
        }
        if let Some(group) = self.by_name.get_mut(target) {
            group.servers.extend(servers.iter().cloned());
        }
        self.check();
    }

    fn move_tables(&mut self, tables: &BTreeSet<TableName>, target: &str) {
        for group in self.by_name.values_mut() {
            group.tables.retain(|table| !tables.contains(table));
        }
        if let Some(group) = self.by_name.get_mut(target) {
            group.tables.extend(tables.iter().cloned());
        }
        self.check();
    }

    fn check(&self) {
        assert!(!self.by_name.contains_key(DEFAULT), "the default group is what is left");
        let (mut servers, mut tables) = (BTreeSet::new(), BTreeSet::new());
        for group in self.by_name.values() {
            for server in &group.servers {
                assert!(servers.insert(server), "{server} is in two groups");
            }
            for table in &group.tables {
                assert!(tables.insert(table), "{table} is in two groups");
            }
        }
    }
}

/// What the master keeps of groups.
///
/// # Thread safety
/// `changing` is held while a change is checked and written, and never while regions move. `now` is held for look-ups and swaps.
#[derive(Default)]
pub(crate) struct GroupState {
    now: RwLock<Groups>,
    changing: Mutex<()>,
    /// `hbase:rsgroup` was read. Before, `now` is what the znodes say, and nothing may be changed.
    loaded: AtomicBool,
    /// The znodes say what `now` says.
    are_published: AtomicBool,
    /// The newest timestamp of the table. The clock of the master before may have been ahead: what is written below its rows, and its marks
    /// of deletes, is hidden. Each change writes the row of `default`, so no mark is newer than all rows.
    newest_ms: AtomicI64,
}

impl GroupState {
    fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::SeqCst)
    }

    /// `Busy` while the table could not be read.
    fn check_loaded(&self) -> Result<()> {
        if self.is_loaded() {
            return Ok(());
        }
        let text = "groups can be changed when hbase:rsgroup can be read: when the WALs of the server that had it are split, \
                    or the row is repaired that the log of this master names";
        Err(Error::new(ErrorKind::Busy, text))
    }
}

impl MasterState {
    pub(crate) fn has_groups(&self) -> bool {
        self.settings.groups.enabled
    }

    fn groups_now(&self) -> Groups {
        self.groups.now.read().clone()
    }

    /// The name of a table's group. A table that is not known is in `default`.
    pub(crate) fn group_of_table(&self, table: &TableName) -> String {
        self.groups.now.read().of_table(table).to_string()
    }

    /// The name of a live server's group.
    pub(crate) fn group_of_server(&self, server: &ServerName) -> String {
        let groups = self.groups.now.read();
        groups.with_server(&Address::of(server)).unwrap_or(DEFAULT).to_string()
    }

    /// The name of the group of the server at an address; `None` if there is none, dead or alive.
    pub(crate) fn group_of_address(&self, address: &Address) -> Option<String> {
        if let Some(name) = self.groups.now.read().with_server(address) {
            return Some(name.to_string());
        }
        let online = self.cluster.servers.online();
        online.iter().any(|server| Address::of(server) == *address).then(|| DEFAULT.to_string())
    }

    /// A group with its members; `None` if there is none of that name.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        let groups = self.groups_now();
        if name == DEFAULT { Some(self.default_group(&groups)) } else { groups.by_name.get(name).cloned() }
    }

    fn default_group(&self, groups: &Groups) -> Group {
        let online = self.cluster.servers.online().into_iter().map(|server| Address::of(&server));
        let known = self.tables.read().by_name.keys().cloned().collect::<Vec<_>>();
        Group {
            servers: online.filter(|server| groups.with_server(server).is_none()).collect(),
            tables: [TableName::META]
                .into_iter()
                .chain(known)
                .filter(|table| groups.of_table(table) == DEFAULT)
                .collect(),
            configuration: BTreeMap::new(),
        }
    }

    pub(crate) fn group_info(&self, name: &str) -> Option<pb::RsGroupInfo> {
        self.group(name).map(|group| group.to_pb(name))
    }

    /// `default` and all others.
    pub(crate) fn group_infos(&self) -> Vec<pb::RsGroupInfo> {
        self.infos_of(&self.groups_now())
    }

    fn infos_of(&self, groups: &Groups) -> Vec<pb::RsGroupInfo> {
        let default = self.default_group(groups).to_pb(DEFAULT);
        let others = groups.by_name.iter().map(|(name, group)| group.to_pb(name));
        std::iter::once(default).chain(others).collect()
    }
}

/// Invalid if a name has other characters than HBase lets it have.
fn check_name(name: &str) -> std::result::Result<(), halcyon_rpc::RpcError> {
    let is_legal = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let text = "RSGroup name should only contain alphanumeric characters";
    if !is_legal {
        return Err(crate::errors::constraint(text.to_string()));
    }
    // It is a row of `hbase:rsgroup`, and the name of a znode.
    halcyon_schema::check_file_name("The RSGroup", name).map_err(crate::errors::invalid)
}

fn unreadable(name: &str, error: &Error) -> Error {
    Error::corrupt(format!("hbase:rsgroup, row {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address { host: "h".to_string(), port }
    }

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_of_letters_digits_and_underscores() {
        for good in ["a", "A_1", "9"] {
            check_name(good).unwrap();
        }
        for bad in ["", "a-b", "a b", "a:b", "é", "a/b"] {
            assert!(check_name(bad).unwrap_err().message.contains("only contain alphanumeric"), "{bad}");
        }
    }

    #[test]
    fn what_moves_is_in_one_group() {
        let mut groups = Groups::default();
        groups.by_name.insert("a".to_string(), Group::default());
        groups.by_name.insert("b".to_string(), Group::default());
        let (servers, tables) = (BTreeSet::from([address(1), address(2)]), BTreeSet::from([table("t")]));
        groups.move_servers(&servers, "a");
        groups.move_tables(&tables, "a");
        groups.move_servers(&BTreeSet::from([address(2)]), "b");
        assert_eq!(groups.with_server(&address(1)), Some("a"));
        assert_eq!(groups.with_server(&address(2)), Some("b"));
        assert_eq!(groups.of_table(&table("t")), "a");
        groups.move_tables(&tables, DEFAULT);
        groups.move_servers(&servers, DEFAULT);
        assert_eq!((groups.with_server(&address(1)), groups.of_table(&table("t"))), (None, DEFAULT));
    }

    #[test]
    fn a_group_goes_to_its_message_and_back() {
        let group = Group {
            servers: BTreeSet::from([address(1)]),
            tables: BTreeSet::from([table("t"), table("n:t")]),
            configuration: BTreeMap::from([("k".to_string(), "v".to_string())]),
        };
        let info = group.to_pb("g");
        assert_eq!((info.name.as_str(), info.servers[0].start_code), ("g", None));
        assert_eq!(Group::from_pb(&info).unwrap(), group);
    }
}
