//! `/prof`: profiles of the running server, as `docs/PROFILING.md` says.
//!
//! ```text
//! /prof?seconds=10               CPU time, by halcyon-profile
//! /prof?event=alloc              allocations, by halcyon-profile and the allocator
//! /prof?event=wait               waits, by what base/env measures (waits.rs)
//! ```
//!
//! One profile at a time, whatever its kind: it takes CPU time that another one would show. A client that leaves ends its
//! profile. Nothing runs in between.

mod parameters;
mod waits;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use halcyon_env::Env;
use halcyon_profile::{AllocationProfile, CpuProfile, FlameGraph, Profile};
use parking_lot::Mutex;

use crate::hbase_pages::is_of_another_site;

use self::parameters::{Event, Output, Parameters, Request};
use self::waits::WaitProfile;

/// A picture with a style of its own and nothing else.
const SVG_HEADERS: [(header::HeaderName, &str); 4] = [
    (header::CONTENT_TYPE, "image/svg+xml"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
];

/// Takes profiles. Both ports share one.
pub struct Profiler {
    env: Env,
    running: Mutex<Option<Running>>,
}

/// The profile that is taken.
struct Running {
    event: Event,
    ends_ns: u64,
}

/// Ends the turn of a profile when dropped.
struct Turn(Arc<Profiler>);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}

impl Profiler {
    pub fn new(env: Env) -> Arc<Profiler> {
        Arc::new(Profiler { env, running: Mutex::default() })
    }

    pub fn routes(self: &Arc<Profiler>) -> Router {
        Router::new().route("/prof", get(answer)).with_state(Arc::clone(self))
    }

    /// Fails with a sentence while another profile is taken.
    fn take_turn(self: &Arc<Profiler>, request: &Request) -> Result<Turn, String> {
        let now_ns = self.env.clock.monotonic_ns();
        let mut running = self.running.lock();
        if let Some(Running { event, ends_ns }) = &*running {
            let left_s = ends_ns.saturating_sub(now_ns).div_ceil(1_000_000_000);
            return Err(format!(
                "A profile of {event} is being taken, for {left_s} s more. The server takes one at a time."
            ));
        }
        let ends_ns = now_ns + request.time.as_nanos() as u64;
        *running = Some(Running { event: request.event, ends_ns });
        Ok(Turn(Arc::clone(self)))
    }
}

/// A profile that is being taken. Dropped early, it just ends.
enum Taken {
    Cpu(CpuProfile),
    Alloc(AllocationProfile),
    Wait(WaitProfile),
}

impl Taken {
    fn start(env: &Env, request: &Request) -> io::Result<Taken> {
        Ok(match request.event {
            Event::Cpu => Taken::Cpu(CpuProfile::start(env.clock.clone(), request.hz)?),
            Event::Alloc => Taken::Alloc(AllocationProfile::start(request.interval_bytes)?),
            Event::Wait => Taken::Wait(WaitProfile::start(env, request.shortest)?),
        })
    }

    /// *Blocking*.
    fn finish(self) -> io::Result<Profile> {
        match self {
            Taken::Cpu(profile) => profile.finish(),
            Taken::Alloc(profile) => profile.finish(),
            Taken::Wait(profile) => Ok(profile.finish()),
        }
    }
}

async fn answer(
    State(profiler): State<Arc<Profiler>>,
    headers: HeaderMap,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let refused = |status: StatusCode, sentence: String| (status, format!("{sentence}\n")).into_response();
    if is_of_another_site(&headers) {
        return refused(StatusCode::FORBIDDEN, "Another site may not take a profile.".to_string());
    }
    let request = match parameters {
        Ok(Query(parameters)) => parameters.check(),
        Err(rejection) => Err(parameters::sentence(&rejection)),
    };
    let request = match request {
        Ok(request) => request,
        Err(sentence) => return refused(StatusCode::BAD_REQUEST, sentence),
    };
    let turn = match profiler.take_turn(&request) {
        Ok(turn) => turn,
        Err(sentence) => return refused(StatusCode::CONFLICT, sentence),
    };
    match take(&profiler.env, request, turn).await {
        Ok(response) => response,
        // the one before this lost its client and still ends
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            refused(StatusCode::CONFLICT, "Another profile is being taken.".to_string())
        }
        Err(error) => {
            refused(StatusCode::INTERNAL_SERVER_ERROR, format!("The profile could not be taken: {error}."))
        }
    }
}

/// The turn goes along until all is done, so that the next profile does not show the end of this one.
async fn take(env: &Env, request: Request, turn: Turn) -> io::Result<Response> {
    let (started_env, time) = (env.clone(), request.time);
    let started = move || Taken::start(&started_env, &request).map(|taken| (taken, request, turn));
    let (taken, request, turn) = blocking(started).await?;
    tokio::time::sleep(time).await;
    blocking(move || {
        let profile = taken.finish()?;
        drop(turn);
        Ok(match request.output {
            Output::Collapsed => profile.folded.to_string().into_response(),
            Output::Svg => (SVG_HEADERS, flame_graph(&request, &profile)).into_response(),
        })
    })
    .await
}

async fn blocking<T: Send + 'static>(body: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(body).await.map_err(io::Error::other)?
}

fn flame_graph(request: &Request, profile: &Profile) -> String {
    let seconds = request.time.as_secs();
    let Profile { folded, samples_count, lost_count } = profile;
    let total = folded.total();
    let (what, how) = match request.event {
        Event::Cpu => {
            ("CPU time", format!("{samples_count} samples, {} for each second of CPU time", request.hz))
        }
        Event::Alloc => {
            let interval = request.interval_bytes >> 10;
            let mib = total as f64 / f64::from(1 << 20);
            (
                "Allocations",
                format!("{mib:.1} MiB, by {samples_count} samples, one for each {interval} KiB of a thread"),
            )
        }
        Event::Wait => {
            let seconds = Duration::from_micros(total).as_secs_f64();
            let shortest = request.shortest.as_micros();
            ("Waits", format!("{seconds:.3} s of all threads together, of waits from {shortest} us on"))
        }
    };
    let mut notes = vec![how];
    if *lost_count > 0 {
        notes.push(format!("{lost_count} more are not shown: there was no place for them"));
    }
    let title = format!("{what} of halcyon {} in {seconds} s", env!("CARGO_PKG_VERSION"));
    FlameGraph { title, notes, unit: request.event.unit(), folded }.svg()
}
