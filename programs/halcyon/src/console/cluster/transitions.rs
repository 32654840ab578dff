//! Regions in transition.

use serde::{Deserialize, Serialize};

use super::{Page, picture};
use crate::cluster::Picture;
use crate::console::api::Refused;
use crate::console::{Console, Role, key_text};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    limit: Option<usize>,
    offset: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Transition {
    table: String,
    start: String,
    name: String,
    state: &'static str,
    server: Option<String>,
    since_ms: i64,
    age_ms: i64,
    procedure: Option<u64>,
    procedure_name: Option<String>,
    reason: String,
}

#[derive(Debug, Serialize)]
pub struct Transitions {
    now_ms: i64,
    count: usize,
    /// Those that are on their way for longer than the threshold.
    stuck_count: usize,
    threshold_ms: i64,
    /// The oldest first.
    transitions: Vec<Transition>,
}

pub fn transitions(console: &Console, _: Role, parameters: Parameters) -> Result<Transitions, Refused> {
    answer(&*picture(console)?, &parameters)
}

pub(super) fn answer(picture: &Picture, asked: &Parameters) -> Result<Transitions, Refused> {
    let (offset, limit) = Page { limit: asked.limit, offset: asked.offset }.checked()?;
    let mut oldest: Vec<_> = picture.transitions.iter().collect();
    oldest.sort_by_key(|it| it.since_ms);
    let shown = oldest.into_iter().skip(offset).take(limit).map(|it| Transition {
        table: it.region.table().to_string(),
        start: key_text(it.region.start_key()),
        name: it.region.encoded_name().to_string(),
        state: it.state,
        server: it.server.as_ref().map(ToString::to_string),
        since_ms: it.since_ms,
        age_ms: (picture.at_ms - it.since_ms).max(0),
        procedure: it.procedure.as_ref().map(|(id, _)| *id),
        procedure_name: it.procedure.as_ref().map(|(_, name)| name.clone()),
        reason: it.reason.clone(),
    });
    Ok(Transitions {
        now_ms: picture.at_ms,
        count: picture.transitions.len(),
        stuck_count: picture.stuck_count(),
        threshold_ms: halcyon_master::STUCK_MS,
        transitions: shown.collect(),
    })
}
