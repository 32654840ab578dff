//! Who was the limit of a run: told from what everybody used, by one rule.
//!
//! 1. The rate that was asked for, where at least 95 % of it were reached.
//! 2. The client's processor time, where it used 90 % of the threads it had.
//! 3. A processor, where all cores together were busy or taken away by the host of a virtual machine for 90 % of the time:
//!    the server's, the client's, others' or the host's, whoever had most of it.
//! 4. The disk, where the machine waited for it during a fifth of one core's time or more.
//! 5. The host, where it took away a tenth of the time of all cores: who sleeps then wakes late.
//! 6. Else nothing: each client waits for its own answer, and there are no more clients.
//!
//! A single thread of the server that is busy all the time is not seen by this, nor is a lock.

use crate::outcome::Resources;

const RATE_SHARE_MIN: f64 = 0.95;
const BUSY_SHARE_MIN: f64 = 0.9;
const IO_WAIT_SHARE_MIN: f64 = 0.2;
const STOLEN_SHARE_MIN: f64 = 0.1;
const HOST: &str = "CPU that the host gave to others";

/// What the rule needs besides the resources.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    pub elapsed_s: f64,
    pub cores: u32,
    /// That the client could use at once.
    pub client_threads: u32,
    pub rate_wanted_per_s: Option<f64>,
    pub rate_per_s: f64,
}

/// In the words of [`Resources::bound_by`].
pub fn bound_by(resources: &Resources, at: Circumstances) -> &'static str {
    let elapsed_s = at.elapsed_s.max(1e-3);
    if at.rate_wanted_per_s.is_some_and(|wanted| at.rate_per_s >= wanted * RATE_SHARE_MIN) {
        return "the rate that was asked for";
    }
    if resources.client_cpu_s >= elapsed_s * f64::from(at.client_threads) * BUSY_SHARE_MIN {
        return "client CPU";
    }
    let stolen = resources.stolen_s;
    let shares = [
        (resources.server_cpu_s, "server CPU"),
        (resources.client_cpu_s, "client CPU"),
        (resources.others_cpu_s, "CPU that others used"),
        (stolen, HOST),
    ];
    let all_s = elapsed_s * f64::from(at.cores);
    if shares.iter().map(|(used_s, _)| used_s).sum::<f64>() >= all_s * BUSY_SHARE_MIN {
        let most = shares.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        return most.map_or("server CPU", |(_, who)| who);
    }
    if resources.io_wait_s >= elapsed_s * IO_WAIT_SHARE_MIN {
        return "disk";
    }
    if stolen >= all_s * STOLEN_SHARE_MIN {
        return HOST;
    }
    "nothing: latency and concurrency"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told() {
        let stolen = |server_cpu_s, client_cpu_s, others_cpu_s, io_wait_s, stolen_s| Resources {
            server_cpu_s,
            client_cpu_s,
            others_cpu_s,
            resident_bytes: 0,
            resident_peak_bytes: 0,
            disk_read_bytes: 0,
            disk_written_bytes: 0,
            io_wait_s,
            stolen_s,
            bound_by: String::new(),
        };
        let used = |server, client, others, io_wait| stolen(server, client, others, io_wait, 0.0);
        let free = Circumstances {
            elapsed_s: 10.0,
            cores: 4,
            client_threads: 1,
            rate_wanted_per_s: None,
            rate_per_s: 900.0,
        };
        let asked = Circumstances { rate_wanted_per_s: Some(920.0), ..free };
        let behind = Circumstances { rate_wanted_per_s: Some(2_000.0), ..free };
        for (resources, at, expected) in [
            (used(30.0, 9.5, 0.0, 0.0), asked, "the rate that was asked for"),
            (used(30.0, 9.5, 0.0, 0.0), behind, "client CPU"),
            (used(20.0, 8.0, 9.0, 0.0), free, "server CPU"),
            (used(5.0, 8.0, 25.0, 0.0), free, "CPU that others used"),
            (used(5.0, 8.0, 2.0, 2.5), free, "disk"),
            (used(5.0, 8.0, 2.0, 0.1), free, "nothing: latency and concurrency"),
            (stolen(5.0, 8.0, 2.0, 0.1, 3.9), free, "nothing: latency and concurrency"),
            (stolen(5.0, 8.0, 2.0, 0.1, 4.1), free, HOST),
            (stolen(9.0, 8.0, 2.0, 2.5, 17.1), free, HOST),
            (used(17.0, 20.0, 0.0, 0.0), Circumstances { client_threads: 4, ..free }, "client CPU"),
        ] {
            assert_eq!(bound_by(&resources, at), expected);
        }
    }
}
