//! What a call that does nothing costs a server: the price every other call pays first.
//!
//! `call_cost HOST:PORT [connections] [calls under way per connection] [calls] [server's process id]`
//! asks `IsMasterRunning` and prints the rate, and the server's processor time per call if its id is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_client::{ConnectOptions, Connection};
use halcyon_env::{Clock, Env, SystemClock};
use halcyon_proto::pb;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let address = args.first().ok_or("HOST:PORT is missing")?.clone();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let (connections, depth, calls) = (number(1, 1)?, number(2, 1)?, number(3, 100_000)?);
    let server = number(4, 0)?;

    let left = Arc::new(AtomicU64::new(calls));
    let clock = SystemClock::new();
    let (cpu_before, start_ns) = (cpu_ticks(server)?, clock.monotonic_ns());
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let options = ConnectOptions::new("MasterService");
        let connection = Arc::new(Connection::connect(&address, &options).await?);
        for _ in 0..depth {
            let (connection, left) = (Arc::clone(&connection), Arc::clone(&left));
            tasks.push(tokio::spawn(async move {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let request = pb::IsMasterRunningRequest {};
                    let answer: pb::IsMasterRunningResponse =
                        connection.call("IsMasterRunning", &request).await.expect("a running server");
                    assert!(answer.is_master_running);
                }
            }));
        }
    }
    for task in tasks {
        task.await?;
    }
    let took_s = (clock.monotonic_ns() - start_ns) as f64 / 1e9;
    println!("{connections} x {depth}: {calls} calls in {took_s:.2} s, {:.0}/s", calls as f64 / took_s);
    if server > 0 {
        let cpu_us = (cpu_ticks(server)? - cpu_before) as f64 * 10_000.0; // a tick is 10 ms
        println!("server: {:.2} us of processor time per call", cpu_us / calls as f64);
    }
    Ok(())
}

/// User and system time of a process in ticks.
fn cpu_ticks(process: u64) -> Result<u64, Box<dyn std::error::Error>> {
    if process == 0 {
        return Ok(0);
    }
    let stat = String::from_utf8(Env::real().fs.read(format!("/proc/{process}/stat").as_ref())?)?;
    let rest = stat.rsplit_once(") ").ok_or("an odd stat file")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}
