//! What clients of HBase 1 see of the states of tables.

use super::*;
use pb::table_state::State as TableState;

impl Many {
    fn published(&self) -> Option<TableState> {
        self.servers.state.lock().published.get("t").copied()
    }

    fn waits_for(&self, proc_id: Option<u64>) {
        let id = proc_id.expect("a procedure");
        let begun = Instant::now();
        loop {
            let request = pb::GetProcedureResultRequest { proc_id: id };
            let result: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request);
            if result.state == pb::get_procedure_result_response::State::Finished as i32 {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "procedure {id} has not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A client that has waited for a procedure asks for the state at once.
#[test]
fn states_are_published_when_a_procedure_has_ended() {
    let c = Many::new(env(), 2);
    assert_eq!(c.published(), None);
    let done: pb::CreateTableResponse = c.call("CreateTable", &create(&table("t", &["f"]), &["m"]));
    c.waits_for(done.proc_id);
    assert_eq!(c.published(), Some(TableState::Enabled));
    let done: pb::DisableTableResponse = c.call("DisableTable", &disable("t"));
    c.waits_for(done.proc_id);
    assert_eq!(c.published(), Some(TableState::Disabled));
    let done: pb::EnableTableResponse = c.call("EnableTable", &enable("t"));
    c.waits_for(done.proc_id);
    assert_eq!(c.published(), Some(TableState::Enabled));

    // As in HBase the table can be worked with all the same.
    c.servers.state.lock().cannot_publish = true;
    let done: pb::DisableTableResponse = c.call("DisableTable", &disable("t"));
    c.waits_for(done.proc_id);
    assert_eq!(c.published(), Some(TableState::Enabled), "nothing could be written");
    c.servers.state.lock().cannot_publish = false;
    c.master.publish_names();
    assert_eq!(c.published(), Some(TableState::Disabled));
    let done: pb::DeleteTableResponse = c.call("DeleteTable", &delete("t"));
    c.waits_for(done.proc_id);
    assert_eq!(c.published(), None);
}

/// HBase's servers and tools look for namespaces in ZooKeeper.
#[test]
fn namespaces_are_published_when_a_procedure_has_ended() {
    let c = Many::new(env(), 1);
    let published = || c.servers.state.lock().published_namespaces.clone();
    let descriptor = NamespaceDescriptor::new("n").to_pb();
    let request = pb::CreateNamespaceRequest { namespace_descriptor: descriptor, ..Default::default() };
    let done: pb::CreateNamespaceResponse = c.call("CreateNamespace", &request);
    c.waits_for(done.proc_id);
    assert_eq!(published(), ["default", "hbase", "n"]);

    c.servers.state.lock().cannot_publish = true;
    let request = pb::DeleteNamespaceRequest { namespace_name: "n".to_string(), ..Default::default() };
    let done: pb::DeleteNamespaceResponse = c.call("DeleteNamespace", &request);
    c.waits_for(done.proc_id);
    assert_eq!(published(), ["default", "hbase", "n"], "nothing could be written");
    c.servers.state.lock().cannot_publish = false;
    c.master.publish_names();
    assert_eq!(published(), ["default", "hbase"]);
}
