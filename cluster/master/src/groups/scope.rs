//! Which servers a table may be on.

use std::collections::BTreeSet;

use halcyon_schema::{ServerName, TableName};

use super::{Address, DEFAULT};
use crate::state::MasterState;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Servers {
    All,
    Only(BTreeSet<Address>),
    AllBut(BTreeSet<Address>),
}

impl Servers {
    fn contain(&self, server: &ServerName) -> bool {
        match self {
            Servers::All => true,
            Servers::Only(servers) => servers.contains(&Address::of(server)),
            Servers::AllBut(servers) => !servers.contains(&Address::of(server)),
        }
    }
}

/// The servers of a table's group, and what takes their place when all of them are dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    group: String,
    /// The group's, and then those that take their place.
    stages: Vec<Servers>,
}

impl Scope {
    /// Without groups.
    pub(crate) fn everywhere() -> Scope {
        Scope { group: DEFAULT.to_string(), stages: vec![Servers::All] }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Of these servers those of the group, or those that take their place if there are none. Empty: the regions wait.
    pub(crate) fn pick<'a>(
        &self,
        servers: impl Iterator<Item = &'a ServerName> + Clone,
    ) -> Vec<&'a ServerName> {
        let of_stage = |stage: &Servers| -> Vec<&'a ServerName> {
            servers.clone().filter(|server| stage.contain(server)).collect()
        };
        self.stages.iter().map(of_stage).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

impl MasterState {
    /// Tables of the system go to any server when their group has none: without them nothing else can be put right.
    pub(crate) fn scope_of(&self, table: &TableName) -> Scope {
        if !self.has_groups() {
            return Scope::everywhere();
        }
        let groups = self.groups.now.read();
        let group = groups.of_table(table).to_string();
        let others = || groups.by_name.values().flat_map(|group| group.servers.iter().cloned()).collect();
        let mut stages = match groups.by_name.get(&group) {
            Some(found) => vec![Servers::Only(found.servers.clone())],
            None => vec![Servers::AllBut(others())],
        };
        if self.settings.groups.fallback || table.is_system() {
            stages.extend([Servers::AllBut(others()), Servers::All]);
        }
        Scope { group, stages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerName {
        ServerName::new("h", port, 7)
    }

    #[test]
    fn others_take_the_place_of_dead_servers_where_they_may() {
        let (one, two) =
            (BTreeSet::from([Address::of(&server(1))]), BTreeSet::from([Address::of(&server(2))]));
        let alone = Scope { group: "g".to_string(), stages: vec![Servers::Only(one.clone())] };
        let stages = vec![Servers::Only(one), Servers::AllBut(two), Servers::All];
        let with_fallback = Scope { group: "g".to_string(), stages };
        let picked = |scope: &Scope, ports: &[u16]| -> Vec<u16> {
            let servers: Vec<ServerName> = ports.iter().map(|port| server(*port)).collect();
            scope.pick(servers.iter()).into_iter().map(|server| server.port).collect()
        };
        assert_eq!(picked(&alone, &[1, 2, 3]), [1]);
        assert_eq!(picked(&alone, &[2, 3]), []);
        assert_eq!(picked(&with_fallback, &[1, 2, 3]), [1]);
        assert_eq!(picked(&with_fallback, &[2, 3]), [3]);
        assert_eq!(picked(&with_fallback, &[2]), [2]);
        assert_eq!(picked(&with_fallback, &[]), []);
        assert_eq!(picked(&Scope::everywhere(), &[2, 3]), [2, 3]);
    }
}
