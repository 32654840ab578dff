//! The script that names the groups of new tables (HBase: `RSGroupInfoManagerImpl.RSGroupMappingScript`).

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Clock;
use halcyon_master::GroupMapping;
use halcyon_schema::TableName;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::master_settings::MasterParts;

/// Between two looks whether the script has ended.
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// More bytes of its output are not read: it is a name.
const OUTPUT_BYTES_MAX: u64 = 4096;

/// Runs the script with the namespace and the name of a new table as arguments; what it prints is the group. After an error or the
/// timeout the script names none, as in HBase.
pub fn mapping(parts: &MasterParts, clock: Arc<dyn Clock>) -> GroupMapping {
    let (script, timeout) = (parts.group_script.clone(), parts.group_script_timeout);
    if script.is_empty() {
        return GroupMapping::default();
    }
    GroupMapping::by(move |table| match answer(Command::new(&script), timeout, &*clock, table) {
        Ok(group) => Some(group),
        Err(error) => {
            tracing::error!(%table, script, error, "the script names no group for a table");
            None
        }
    })
}

fn answer(
    mut script: Command,
    timeout: Duration,
    clock: &dyn Clock,
    table: &TableName,
) -> Result<String, String> {
    let failed = |error: io::Error| error.to_string();
    // A file, so that nothing has to be read while the script runs.
    let output = memfd_create("group", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut output = File::from(output);
    let mut child = script
        .args([table.namespace(), table.qualifier()])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let deadline_ns = clock.monotonic_ns().saturating_add(timeout_ns);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if clock.monotonic_ns() >= deadline_ns {
            end(&mut child);
            return Err(format!("it has not ended after {timeout:?}"));
        }
        clock.sleep(LOOK_PERIOD);
    };
    if !status.success() {
        return Err(status.to_string());
    }
    let mut text = String::new();
    output.rewind().map_err(failed)?;
    output.take(OUTPUT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text.trim().to_string())
}

/// With what it has started.
fn end(child: &mut Child) {
    // It has not been waited for, so no other process has its number.
    if let Err(error) = kill_process_group(Pid::from_child(child), Signal::KILL) {
        tracing::warn!(%error, "the script was not killed");
        return;
    }
    if let Err(error) = child.wait() {
        tracing::warn!(%error, "the script was not waited for");
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::Env;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn said(script: Command, timeout: Duration) -> Result<String, String> {
        answer(script, timeout, &*Env::real().clock, &TableName::parse(b"shop:orders").unwrap())
    }

    fn shell(body: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", body, "script"]);
        shell
    }

    #[test]
    fn the_script_gets_namespace_and_name() {
        assert_eq!(said(shell("echo \" $1-$2-$# \""), LONG), Ok("shop-orders-2".to_string()));
    }

    #[test]
    fn a_script_that_fails_names_no_group() {
        let error = said(shell("echo g; exit 3"), LONG).unwrap_err();
        assert!(error.contains('3'), "{error}");
        let error = said(Command::new("/no/such/script"), LONG).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }

    /// What the script has started holds the writing end of a pipe, which ends with it.
    #[test]
    fn a_script_that_hangs_is_killed_with_what_it_started() {
        let clock = Env::real().clock;
        let begun_ns = clock.monotonic_ns();
        let (mut held, holds) = io::pipe().unwrap();
        rustix::io::fcntl_setfd(&holds, rustix::io::FdFlags::empty()).unwrap();
        let error = said(shell("sleep 600 & wait"), Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("has not ended"), "{error}");
        drop(holds);
        held.read_to_end(&mut Vec::new()).unwrap();
        let took = Duration::from_nanos(clock.monotonic_ns() - begun_ns);
        assert!(took < Duration::from_secs(300), "what the script started has lived for {took:?}");
    }

    #[test]
    fn only_the_beginning_of_long_output_is_read() {
        let said = said(shell("head -c 100000 /dev/zero | tr '\\0' x"), LONG).unwrap();
        assert_eq!(said.len() as u64, OUTPUT_BYTES_MAX);
    }
}
