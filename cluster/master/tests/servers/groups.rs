//! Region server groups over several servers. The cases are those of HBase's `TestRSGroupsBasics`, `TestRSGroupsAdmin1`,
//! `TestRSGroupsAdmin2`, `TestRSGroupsKillRS`, `TestRSGroupsBalance` and `TestRSGroupsFallback`, in this order.

mod damaged;

use halcyon_master::{GroupMapping, GroupSettings};
use halcyon_rpc::RpcError;
use halcyon_schema::{TableDescriptor, TableName};
use prost::Message;

use super::*;

fn with_groups(fallback: bool) -> MasterSettings {
    MasterSettings { groups: GroupSettings { enabled: true, fallback }, ..settings() }
}

fn cluster(count: u16) -> Many {
    Many::over_with(Servers::new(env(), count), with_groups(false))
}

/// The server as groups know it.
fn address(number: u16) -> pb::ServerName {
    pb::ServerName { host_name: "h".to_string(), port: Some(16020 + u32::from(number)), start_code: None }
}

fn table_name(name: &str) -> pb::TableName {
    TableName::parse(name.as_bytes()).unwrap().to_pb()
}

type Said<R> = std::result::Result<R, RpcError>;

impl Many {
    fn group_call<R: Message + Default>(&self, method: &str, request: &impl Message) -> Said<R> {
        let call = pb::CoprocessorServiceCall {
            row: Default::default(),
            service_name: "RSGroupAdminService".to_string(),
            method_name: method.to_string(),
            request: request.encode_to_vec().into(),
        };
        let region = pb::RegionSpecifier { r#type: 1, value: Default::default() };
        let request = pb::CoprocessorServiceRequest { region, call };
        let response: pb::CoprocessorServiceResponse = answer(&self.service, "ExecMasterService", &request)?;
        assert_eq!(response.value.name, format!("hbase.pb.{method}Response"));
        Ok(R::decode(response.value.value.unwrap()).unwrap())
    }

    fn add(&self, group: &str) -> Said<()> {
        let request = pb::AddRsGroupRequest { r_s_group_name: group.to_string() };
        self.group_call::<pb::AddRsGroupResponse>("AddRSGroup", &request).map(drop)
    }

    fn remove(&self, group: &str) -> Said<()> {
        let request = pb::RemoveRsGroupRequest { r_s_group_name: group.to_string() };
        self.group_call::<pb::RemoveRsGroupResponse>("RemoveRSGroup", &request).map(drop)
    }

    fn rename(&self, old: &str, new: &str) -> Said<()> {
        let request =
            pb::RenameRsGroupRequest { old_rsgroup_name: old.to_string(), new_rsgroup_name: new.to_string() };
        self.group_call::<pb::RenameRsGroupResponse>("RenameRSGroup", &request).map(drop)
    }

    fn move_servers(&self, servers: &[u16], group: &str) -> Said<()> {
        let servers = servers.iter().map(|number| address(*number)).collect();
        let request = pb::MoveServersRequest { target_group: group.to_string(), servers };
        self.group_call::<pb::MoveServersResponse>("MoveServers", &request).map(drop)
    }

    fn move_tables(&self, tables: &[&str], group: &str) -> Said<()> {
        let table_name = tables.iter().map(|name| table_name(name)).collect();
        let request = pb::MoveTablesRequest { target_group: group.to_string(), table_name };
        self.group_call::<pb::MoveTablesResponse>("MoveTables", &request).map(drop)
    }

    fn move_both(&self, servers: &[u16], tables: &[&str], group: &str) -> Said<()> {
        let request = pb::MoveServersAndTablesRequest {
            target_group: group.to_string(),
            servers: servers.iter().map(|number| address(*number)).collect(),
            table_name: tables.iter().map(|name| table_name(name)).collect(),
        };
        self.group_call::<pb::MoveServersAndTablesResponse>("MoveServersAndTables", &request).map(drop)
    }

    fn remove_servers(&self, servers: &[u16]) -> Said<()> {
        let servers = servers.iter().map(|number| address(*number)).collect();
        let request = pb::RemoveServersRequest { servers };
        self.group_call::<pb::RemoveServersResponse>("RemoveServers", &request).map(drop)
    }

    /// Ports and tables of a group, without those of the system.
    fn members(&self, group: &str) -> Option<(Vec<u32>, Vec<String>)> {
        let request = pb::GetRsGroupInfoRequest { r_s_group_name: group.to_string() };
        let response: pb::GetRsGroupInfoResponse = self.group_call("GetRSGroupInfo", &request).unwrap();
        let info = response.r_s_group_info?;
        assert_eq!(info.name, group);
        let tables = info.tables.iter().map(|table| TableName::from_pb(table).unwrap());
        let tables = tables.filter(|table| !table.is_system()).map(|table| table.to_string()).collect();
        Some((info.servers.iter().map(|server| server.port() - 16020).collect(), tables))
    }

    fn group_of(&self, table: &str) -> Option<String> {
        let request = pb::GetRsGroupInfoOfTableRequest { table_name: table_name(table) };
        let response: pb::GetRsGroupInfoOfTableResponse =
            self.group_call("GetRSGroupInfoOfTable", &request).unwrap();
        response.r_s_group_info.map(|info| info.name)
    }

    fn servers_of_t(&self) -> BTreeSet<String> {
        self.places().into_values().map(|(server, _)| server).collect()
    }

    fn create_as(&self, descriptor: &TableDescriptor) -> Said<()> {
        let response: pb::CreateTableResponse =
            answer(&self.service, "CreateTable", &create(descriptor, &[]))?;
        let id = response.proc_id();
        loop {
            let request = pb::GetProcedureResultRequest { proc_id: id };
            let result: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request);
            if result.state() == pb::get_procedure_result_response::State::Finished {
                let Some(exception) = result.exception.and_then(|it| it.generic_exception) else {
                    return Ok(());
                };
                let mut error = RpcError::do_not_retry(exception.message.unwrap_or_default());
                error.class = exception.class_name.unwrap_or_default().into();
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn names(servers: &[u16]) -> BTreeSet<String> {
    servers.iter().map(|number| name(*number).to_string()).collect()
}

#[track_caller]
fn refused(said: Said<()>, text: &str) {
    let error = said.expect_err(text);
    assert!(error.do_not_retry && error.message.contains(text), "{error:?}");
    assert!(error.class.ends_with("ConstraintException"), "{error:?}");
}

#[test]
fn a_cluster_has_one_group_to_begin_with() {
    let c = cluster(3);
    c.create(&[]);
    assert_eq!(c.members("default"), Some((vec![0, 1, 2], vec!["t".to_string()])));
    assert_eq!(c.members("none"), None);
    assert_eq!((c.group_of("t").as_deref(), c.group_of("none")), (Some("default"), None));
    assert_eq!(c.group_of("hbase:meta").as_deref(), Some("default"));
    assert_eq!(c.group_of("hbase:rsgroup").as_deref(), Some("default"));
    let all: pb::ListRsGroupInfosResponse =
        c.group_call("ListRSGroupInfos", &pb::ListRsGroupInfosRequest {}).unwrap();
    assert_eq!(all.r_s_group_info.len(), 1);
    c.servers.join(&name(3));
    assert_eq!(c.members("default").unwrap().0, [0, 1, 2, 3]);
}

#[test]
fn without_the_endpoint_there_are_no_groups() {
    let c = Many::new(env(), 2);
    let error = c.add("g").unwrap_err();
    assert!(error.class.ends_with("UnknownProtocolException"), "{error:?}");
    assert!(
        error.message.contains("No registered Master Coprocessor Endpoint found for RSGroupAdminService")
    );
    let request = pb::AddRsGroupRequest { r_s_group_name: "g".to_string() };
    let error = answer::<pb::AddRsGroupResponse>(&c.service, "AddRSGroup", &request).unwrap_err();
    assert!(error.message.contains("Region server groups are not supported"), "{error:?}");
    // With it, another method or service is not there either.
    let c = cluster(2);
    let error = c.group_call::<pb::AddRsGroupResponse>("Fly", &pb::AddRsGroupRequest::default()).unwrap_err();
    assert!(error.class.ends_with("UnknownProtocolException"), "{error:?}");
}

#[test]
fn servers_and_tables_move_with_their_regions() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[2, 3], "g").unwrap();
    assert_eq!(c.members("g"), Some((vec![2, 3], vec![])));
    assert_eq!(c.members("default"), Some((vec![0, 1], vec!["t".to_string()])));
    // Answered when they have moved.
    assert_eq!(c.servers_of_t(), names(&[0, 1]));
    assert!(
        c.servers.state.lock().online[&name(2)].is_empty()
            && c.servers.state.lock().online[&name(3)].is_empty()
    );
    c.move_tables(&["t"], "g").unwrap();
    assert_eq!(c.servers_of_t(), names(&[2, 3]));
    assert_eq!((c.group_of("t").as_deref(), c.members("default").unwrap().1.len()), (Some("g"), 0));
    c.settles("t", 9);
    // Back together.
    c.move_both(&[2, 3], &["t"], "default").unwrap();
    assert_eq!(c.members("g"), Some((vec![], vec![])));
    c.remove("g").unwrap();
    assert_eq!(c.members("g"), None);
    c.settles("t", 9);
}

#[test]
fn the_next_master_has_the_groups() {
    let c = cluster(4);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    c.create(&KEYS);
    c.move_tables(&["t"], "g").unwrap();
    let request = pb::UpdateRsGroupConfigRequest {
        group_name: "g".to_string(),
        configuration: vec![pb::NameStringPair { name: "k".to_string(), value: "v".to_string() }],
    };
    let _: pb::UpdateRsGroupConfigResponse = c.group_call("UpdateRSGroupConfig", &request).unwrap();
    let servers = c.servers.clone();
    c.master.stop();
    // Its group's only server died meanwhile, and another life of it is there.
    servers.kill(&name(3));
    servers.join(&ServerName::new("h", 16023, 9));
    let c = Many::over_with(servers, with_groups(false));
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), BTreeSet::from(["h,16023,9".to_string()]));
    assert_eq!(c.members("g"), Some((vec![3], vec!["t".to_string()])));
    let request = pb::GetRsGroupInfoRequest { r_s_group_name: "g".to_string() };
    let info: pb::GetRsGroupInfoResponse = c.group_call("GetRSGroupInfo", &request).unwrap();
    assert_eq!(info.r_s_group_info.unwrap().configuration[0].value, "v");
    // In the form of HBase.
    let region =
        c.servers.disk.meta_rows().into_iter().find(|row| row[0].row().starts_with(b"hbase:rsgroup,"));
    let region = region.unwrap().into_iter().find(|cell| cell.qualifier() == b"regioninfo").unwrap();
    let region = RegionInfo::decode_value(region.value()).unwrap();
    let rows = c.servers.disk.scan_rows(region.encoded_name()).unwrap();
    let of_g = rows.iter().find(|row| row[0].row() == b"g").unwrap();
    assert_eq!((of_g[0].family(), of_g[0].qualifier()), (&b"m"[..], &b"i"[..]));
    assert_eq!(pb::RsGroupInfo::decode(of_g[0].value()).unwrap().servers, [address(3)]);
}

#[test]
fn nonsense_is_refused_with_the_words_of_hbase() {
    let c = cluster(3);
    c.create(&[]);
    for bad in ["a-b", "", "a:b"] {
        refused(c.add(bad), "RSGroup name should only contain alphanumeric characters");
    }
    c.add("g").unwrap();
    for known in ["g", "default"] {
        assert!(c.add(known).unwrap_err().message.contains(&format!("Group already exists: {known}")));
    }
    refused(c.remove("none"), "RSGroup none does not exist");
    refused(c.remove("default"), "RSGroup default has 4 tables; you must remove these tables");
    refused(c.move_servers(&[0], "none"), "RSGroup does not exist: none");
    refused(c.move_servers(&[0], ""), "RSGroup cannot be null.");
    refused(c.move_servers(&[9], "g"), "Server h:16029 is either offline or it does not exist.");
    refused(c.move_servers(&[0, 1, 2], "g"), "should keep at least one server in 'default' RSGroup.");
    refused(c.move_tables(&["t"], "none"), "Target none RSGroup does not exist.");
    refused(c.move_tables(&["t"], "g"), "Target RSGroup must have at least one server.");
    c.move_servers(&[], "g").unwrap();
    c.move_servers(&[2], "g").unwrap();
    refused(c.remove("g"), "RSGroup g has 1 servers; you must remove these servers");
    refused(c.move_servers(&[1, 2], "g"), "Move server request should only come from one source RSGroup.");
    c.move_tables(&["t"], "g").unwrap();
    let left = "Cannot leave a RSGroup g that contains tables without servers to host them.";
    refused(c.move_servers(&[2], "default"), left);
    refused(c.move_both(&[], &["t"], "default"), "The list of servers to move cannot be null or empty.");
    refused(c.move_both(&[2], &[], "default"), "The list of tables to move cannot be null or empty.");
    refused(c.move_both(&[1], &["t"], "g"), "Move table request should only come from one source RSGroup.");
    refused(c.remove_servers(&[]), "The set of servers to remove cannot be null or empty.");
    refused(c.remove_servers(&[2]), "Server h:16022 is an online server, not allowed to remove.");
    refused(c.rename("default", "x"), "Can't rename default rsgroup");
    refused(c.rename("none", "x"), "RSGroup none does not exist");
    refused(c.rename("g", "default"), "Group already exists: default");
    refused(c.rename("g", "a b"), "only contain alphanumeric");
    let request = pb::UpdateRsGroupConfigRequest { group_name: "default".to_string(), configuration: vec![] };
    let said = c.group_call::<pb::UpdateRsGroupConfigResponse>("UpdateRSGroupConfig", &request);
    refused(said.map(drop), "configuration of default can't be stored persistently");
    // A region does not go to a server of another group.
    let region = c.places().into_keys().next().unwrap();
    let region = pb::RegionSpecifier { r#type: 1, value: region.into_bytes().into() };
    let request = pb::MoveRegionRequest { region, dest_server_name: Some(name(0).to_pb()) };
    let said = answer::<pb::MoveRegionResponse>(&c.service, "MoveRegion", &request);
    refused(said.map(drop), "is not in RSGroup g of table t");
    assert_eq!(c.servers_of_t(), names(&[2]));
}

#[test]
fn a_group_gets_another_name_and_is_named_by_tables() {
    let c = cluster(3);
    c.add("g").unwrap();
    c.move_servers(&[2], "g").unwrap();
    let named = table("t", &["f"]).with("hbase.rsgroup.name", "g");
    c.create_as(&named).unwrap();
    assert_eq!((c.group_of("t").as_deref(), c.servers_of_t()), (Some("g"), names(&[2])));
    c.rename("g", "h").unwrap();
    assert_eq!((c.group_of("t").as_deref(), c.members("g")), (Some("h"), None));
    let request = pb::GetTableDescriptorsRequest { table_names: vec![table_name("t")], ..Default::default() };
    let attribute = |c: &Many| {
        let response: pb::GetTableDescriptorsResponse = c.call("GetTableDescriptors", &request);
        let table = TableDescriptor::from_pb(&response.table_schema[0]).unwrap();
        table.setting("hbase.rsgroup.name").map(str::to_string)
    };
    assert_eq!(attribute(&c).as_deref(), Some("h"));
    // The attribute follows a move, and a table follows its attribute.
    c.move_tables(&["t"], "default").unwrap();
    assert_eq!(attribute(&c).as_deref(), Some("default"));
    assert!(c.servers_of_t().is_disjoint(&names(&[2])));
    let request = pb::ModifyTableRequest {
        table_name: table_name("t"),
        table_schema: table("t", &["f"]).with("hbase.rsgroup.name", "h").to_pb(),
        ..Default::default()
    };
    let _: pb::ModifyTableResponse = c.call("ModifyTable", &request);
    c.quiet();
    assert_eq!((c.group_of("t").as_deref(), c.servers_of_t()), (Some("h"), names(&[2])));
}

#[test]
fn new_tables_go_to_the_group_of_their_namespace() {
    let c = cluster(3);
    c.add("g").unwrap();
    c.add("empty").unwrap();
    c.move_servers(&[2], "g").unwrap();
    let namespace = |name: &str, group: &str| pb::CreateNamespaceRequest {
        namespace_descriptor: pb::NamespaceDescriptor {
            name: name.to_string().into(),
            configuration: vec![pb::NameStringPair {
                name: "hbase.rsgroup.name".to_string(),
                value: group.to_string(),
            }],
        },
        ..Default::default()
    };
    let said = answer::<pb::CreateNamespaceResponse>(&c.service, "CreateNamespace", &namespace("n", "none"));
    refused(said.map(drop), "Region server group none does not exist.");
    let _: pb::CreateNamespaceResponse = c.call("CreateNamespace", &namespace("n", "g"));
    let _: pb::CreateNamespaceResponse = c.call("CreateNamespace", &namespace("e", "empty"));
    c.quiet();
    c.create_as(&table("n:a", &["f"])).unwrap();
    assert_eq!(c.group_of("n:a").as_deref(), Some("g"));
    let error = c.create_as(&table("e:a", &["f"])).unwrap_err();
    assert!(error.class.ends_with("HBaseIOException"), "{error:?}");
    assert_eq!(error.message, "No online servers in the rsgroup empty which table e:a belongs to");
    let said = c.create_as(&table("x", &["f"]).with("hbase.rsgroup.name", "none"));
    assert!(said.unwrap_err().message.contains("Region server group none does not exist."));
    refused(c.remove("empty"), "RSGroup empty is referenced by namespace: e");
    // A table that is deleted leaves its group.
    let request = pb::DisableTableRequest { table_name: table_name("n:a"), ..Default::default() };
    let _: pb::DisableTableResponse = c.call("DisableTable", &request);
    c.quiet();
    let request = pb::DeleteTableRequest { table_name: table_name("n:a"), ..Default::default() };
    let _: pb::DeleteTableResponse = c.call("DeleteTable", &request);
    c.quiet();
    assert_eq!((c.group_of("n:a"), c.members("g").unwrap().1.len()), (None, 0));
}

/// As `RSGroupMappingScript` of HBase does it.
#[test]
fn a_script_names_the_groups_of_new_tables() {
    let mapping = GroupMapping::by(|table| match (table.namespace(), table.qualifier()) {
        ("default", "silent") => None,
        ("default", "lost") => Some("none".to_string()),
        _ => Some("g".to_string()),
    });
    let settings = MasterSettings { group_mapping: mapping, ..with_groups(false) };
    let c = Many::over_with(Servers::new(env(), 3), settings);
    c.add("g").unwrap();
    c.add("h").unwrap();
    c.move_servers(&[1], "g").unwrap();
    c.move_servers(&[2], "h").unwrap();
    for name in ["named", "silent", "lost"] {
        c.create_as(&table(name, &["f"])).unwrap();
    }
    c.create_as(&table("told", &["f"]).with("hbase.rsgroup.name", "h")).unwrap();
    let found = ["named", "silent", "lost", "told"].map(|name| c.group_of(name));
    let group = |name: &str| Some(name.to_string());
    assert_eq!(
        found,
        [group("g"), group("default"), group("default"), group("h")],
        "the attribute comes first, and a group has to be there"
    );
}

#[test]
fn regions_of_a_dead_server_stay_in_the_group_and_wait_for_it() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[2, 3], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    c.die(&name(2));
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[3]));
    c.die(&name(3));
    let begun = Instant::now();
    let reason = "no server of RSGroup g is alive: its regions wait for one";
    while !c.master.procedures().iter().any(|it| it.state.contains(reason)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in [0, 1] {
        assert_eq!(c.servers.regions_at(&name(number)), 0);
    }
    // Another life of one of them.
    c.servers.join(&ServerName::new("h", 16022, 5));
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), BTreeSet::from(["h,16022,5".to_string()]));
    // The other one does not come back.
    c.quiet();
    let refused = c.remove_servers(&[3]).unwrap_err();
    assert!(refused.message.contains("is on the dead servers list"), "{}", refused.message);
    let request = pb::ClearDeadServersRequest { server_name: vec![name(3).to_pb()] };
    let left: pb::ClearDeadServersResponse = c.call("ClearDeadServers", &request);
    assert_eq!(left.server_name, []);
    assert_eq!(c.members("g").unwrap().0, [2]);
    c.remove_servers(&[3]).unwrap();
}

#[test]
fn tables_of_the_system_survive_their_group() {
    let c = cluster(3);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[1, 2], "g").unwrap();
    c.die(&name(0));
    let begun = Instant::now();
    let is_open = |c: &Many| {
        let state = c.servers.state.lock();
        let open = state.online.values().flat_map(BTreeMap::values);
        open.filter(|region| region.table().is_system()).count() == 3
    };
    while !is_open(&c) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.master.procedures());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Groups can be put right.
    c.move_servers(&[1], "default").unwrap();
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[1]));
}

#[test]
fn with_the_fallback_others_take_the_place_of_dead_servers() {
    let c = Many::over_with(Servers::new(env(), 3), with_groups(true));
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[2], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    c.die(&name(2));
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[0, 1]));
    // The balancer brings them back.
    c.servers.join(&ServerName::new("h", 16022, 5));
    let _: pb::BalanceResponse = c.call("Balance", &pb::BalanceRequest::default());
    c.quiet();
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), BTreeSet::from(["h,16022,5".to_string()]));
}

#[test]
fn each_group_is_balanced_for_itself() {
    let c = cluster(3);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[2], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    c.servers.join(&name(3));
    c.servers.join(&name(4));
    // New servers are in the default group, which has nothing to do.
    let _: pb::BalanceResponse = c.call("Balance", &pb::BalanceRequest::default());
    c.quiet();
    assert_eq!(c.servers_of_t(), names(&[2]));
    c.move_servers(&[3], "g").unwrap();
    let balance = |group: &str, dry_run| {
        let request = pb::BalanceRsGroupRequest {
            r_s_group_name: group.to_string(),
            ignore_rit: None,
            dry_run: Some(dry_run),
        };
        c.group_call::<pb::BalanceRsGroupResponse>("BalanceRSGroup", &request)
    };
    refused(balance("none", false).map(drop), "RSGroup does not exist: none");
    let tried = balance("g", true).unwrap();
    assert!(tried.balance_ran && tried.moves_calculated() > 0 && tried.moves_executed() == 0, "{tried:?}");
    assert_eq!(c.servers_of_t(), names(&[2]));
    let ran = balance("g", false).unwrap();
    assert!(ran.balance_ran && ran.moves_executed() > 0, "{ran:?}");
    c.quiet();
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[2, 3]));
    assert!((4..=5).contains(&c.servers.regions_at(&name(3))));
    let off = pb::SetBalancerRunningRequest { on: false, synchronous: None };
    let _: pb::SetBalancerRunningResponse = c.call("SetBalancerRunning", &off);
    assert!(!balance("g", false).unwrap().balance_ran);
}

/// Servers and masters die in an order that a seed gives; a table never leaves its group.
#[test]
fn deaths_and_groups_in_any_order() {
    let test = "-p halcyon-master --test all servers::groups::deaths_and_groups_in_any_order";
    for_each_seed(test, 0..30, |seed| {
        let mut c = cluster(4);
        c.create(&KEYS);
        c.add("g").unwrap();
        c.move_servers(&[2, 3], "g").unwrap();
        c.move_tables(&["t"], "g").unwrap();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for life in 2..7 {
            random ^= random << 13;
            random ^= random >> 7;
            let online: Vec<ServerName> = c.servers.state.lock().online.keys().cloned().collect();
            let victim = online[random as usize % online.len()].clone();
            if random % 3 == 0 {
                c.master.stop();
                c = Many::over_with(c.servers.clone(), with_groups(false));
            } else if online.len() > 1 {
                c.die(&victim);
                c.servers.join(&ServerName::new("h", victim.port, life));
            }
            let wrong = c.servers.state.lock().online.iter().any(|(server, regions)| {
                server.port < 16022 && regions.values().any(|region| region.table().to_string() == "t")
            });
            assert!(!wrong, "seed {seed}: a region is at a server of another group");
        }
        c.settles("t", 9);
    });
}

/// The server that had `hbase:rsgroup`, or `hbase:namespace`, has left a WAL that cannot be split. The next master did not start until it
/// was. Now it places regions by the znodes until then, and changes no group.
#[test]
fn a_start_waits_for_no_server_of_groups() {
    for system in ["hbase:rsgroup", "hbase:namespace"] {
        let c = cluster(4);
        c.create(&KEYS);
        c.add("g").unwrap();
        c.move_servers(&[2, 3], "g").unwrap();
        c.move_tables(&["t"], "g").unwrap();
        let servers = c.servers.clone();
        let dead = {
            let state = servers.state.lock();
            let has = |regions: &BTreeMap<String, RegionInfo>| {
                regions.values().any(|region| region.table().to_string() == system)
            };
            state.online.iter().find(|(_, regions)| has(regions)).expect("it is open").0.clone()
        };
        c.master.stop();
        servers.state.lock().damaged.insert(format!("{dead}.1"));
        servers.kill(&dead);
        let c = Many::over_with(servers, with_groups(false));
        c.master.recover_dead_servers();
        assert_eq!(c.group_of("t").as_deref(), Some("g"));
        // A region that a client has opened now is where its group is.
        c.servers.kill(&name(2));
        let begun = Instant::now();
        while c.servers.regions_at(&name(3)) < 9 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.master.procedures());
            c.master.recover_dead_servers();
            std::thread::sleep(Duration::from_millis(5));
        }
        let refused = if system == "hbase:rsgroup" { c.add("h") } else { c.remove("g") };
        let refused = refused.expect_err("what is not read is not changed");
        assert!(!refused.do_not_retry && refused.message.contains("WALs of the server"), "{refused:?}");
        c.servers.state.lock().damaged.clear();
        let begun = Instant::now();
        let changed = || if system == "hbase:rsgroup" { c.add("h") } else { c.rename("g", "h") };
        while let Err(error) = changed() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}: {:?}", c.master.procedures());
            c.master.recover_dead_servers(); // as the process does now and then
            std::thread::sleep(Duration::from_millis(5));
        }
        c.settles("t", 9);
        assert_eq!(c.servers_of_t(), names(&[3]));
    }
}

/// Its table did not open, and no master started.
#[test]
fn a_damaged_table_of_groups_keeps_no_master_from_starting() {
    let c = cluster(4);
    c.create(&KEYS);
    c.add("g").unwrap();
    c.move_servers(&[3], "g").unwrap();
    c.move_tables(&["t"], "g").unwrap();
    let servers = c.servers.clone();
    let dead = {
        let state = servers.state.lock();
        let has = |regions: &BTreeMap<String, RegionInfo>| {
            regions.values().any(|region| region.table().to_string() == "hbase:rsgroup")
        };
        state.online.iter().find(|(_, regions)| has(regions)).expect("it is open").0.clone()
    };
    c.master.stop();
    servers.state.lock().refused_tables.insert("hbase:rsgroup".to_string());
    servers.kill(&dead);
    let c = Many::over_with(servers, with_groups(false));
    assert_eq!(c.group_of("t").as_deref(), Some("g"));
    c.add("h").expect_err("what is not read is not changed");
    c.servers.state.lock().refused_tables.clear();
    let begun = Instant::now();
    while let Err(error) = c.add("h") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}: {:?}", c.master.procedures());
        c.master.recover_dead_servers(); // as the process does now and then
        std::thread::sleep(Duration::from_millis(5));
    }
    c.settles("t", 9);
    assert_eq!(c.servers_of_t(), names(&[3]));
}

/// The last change of groups was not published. The next master had nothing but the znodes.
#[test]
fn groups_that_could_not_be_published_are_published_later() {
    let c = cluster(2);
    c.servers.state.lock().cannot_publish = true;
    c.add("g").unwrap();
    let published = || c.servers.state.lock().published_groups.clone().unwrap_or_default().len();
    assert_eq!(published(), 1);
    c.servers.state.lock().cannot_publish = false;
    c.master.recover_dead_servers(); // as the process does now and then
    assert_eq!(published(), 2);
}
