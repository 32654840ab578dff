//! What a client may ask of `/prof`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use serde::Deserialize;

/// A connection to an info port ends after 60 seconds, and the names of functions are looked up in the rest.
const SECONDS: RangeInclusive<u64> = 1..=45;
const SECONDS_DEFAULT: u64 = 10;
/// Not a divisor of common periods, so that the samples do not always meet the same moment of a timer.
const HZ_DEFAULT: u64 = 99;
const HZ: RangeInclusive<u64> = 1..=1000;
const INTERVAL_BYTES_DEFAULT: u64 = 512 << 10;
const INTERVAL_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;
const MIN_US_DEFAULT: u64 = 100;
const MIN_US: RangeInclusive<u64> = 10..=10_000_000;

/// The query as it comes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    seconds: Option<u64>,
    #[serde(default)]
    event: Event,
    #[serde(default)]
    output: Output,
    hz: Option<u64>,
    interval_bytes: Option<u64>,
    min_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    #[default]
    Cpu,
    Alloc,
    Wait,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    #[default]
    Svg,
    Collapsed,
}

/// The query with defaults and within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub event: Event,
    pub output: Output,
    pub time: Duration,
    /// Samples for each second of CPU time.
    pub hz: u32,
    /// Bytes between two samples of allocations.
    pub interval_bytes: usize,
    /// Shorter waits do not count.
    pub shortest: Duration,
}

impl Parameters {
    pub fn check(self) -> Result<Request, String> {
        let only = |name: &str, given: Option<u64>, event: Event| match given {
            Some(_) if self.event != event => Err(format!("\"{name}\" is a parameter of event={event}.")),
            _ => Ok(()),
        };
        only("hz", self.hz, Event::Cpu)?;
        only("interval_bytes", self.interval_bytes, Event::Alloc)?;
        only("min_us", self.min_us, Event::Wait)?;
        let hz = within("hz", self.hz, HZ_DEFAULT, HZ)?;
        let interval_bytes =
            within("interval_bytes", self.interval_bytes, INTERVAL_BYTES_DEFAULT, INTERVAL_BYTES)?;
        Ok(Request {
            event: self.event,
            output: self.output,
            time: Duration::from_secs(within("seconds", self.seconds, SECONDS_DEFAULT, SECONDS)?),
            hz: u32::try_from(hz).expect("within its bounds"),
            interval_bytes: usize::try_from(interval_bytes).expect("within its bounds"),
            shortest: Duration::from_micros(within("min_us", self.min_us, MIN_US_DEFAULT, MIN_US)?),
        })
    }
}

fn within(name: &str, given: Option<u64>, default: u64, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let value = given.unwrap_or(default);
    if bounds.contains(&value) {
        return Ok(value);
    }
    Err(format!("\"{name}\" is {value}; it is to be from {} to {}.", bounds.start(), bounds.end()))
}

/// What is wrong with a query that cannot be read.
pub fn sentence(rejection: &QueryRejection) -> String {
    let text = rejection.body_text();
    format!("{}.", text.trim_start_matches("Failed to deserialize query string: "))
}

impl Event {
    pub fn unit(self) -> &'static str {
        match self {
            Event::Cpu => "samples",
            Event::Alloc => "bytes",
            Event::Wait => "us",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Cpu => "cpu",
            Event::Alloc => "alloc",
            Event::Wait => "wait",
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;

    use super::*;

    fn read(query: &str) -> Result<Request, String> {
        let uri = format!("/prof?{query}").parse().unwrap();
        match Query::<Parameters>::try_from_uri(&uri) {
            Ok(Query(parameters)) => parameters.check(),
            Err(rejection) => Err(sentence(&rejection)),
        }
    }

    #[test]
    fn what_is_not_given_has_a_default() {
        let default = read("").unwrap();
        assert_eq!((default.event, default.output, default.hz), (Event::Cpu, Output::Svg, 99));
        assert_eq!((default.time, default.shortest), (Duration::from_secs(10), Duration::from_micros(100)));
        let given = read("event=alloc&seconds=1&output=collapsed&interval_bytes=4096").unwrap();
        assert_eq!(
            (given.event, given.output, given.interval_bytes),
            (Event::Alloc, Output::Collapsed, 4096)
        );
        assert_eq!(read("event=wait&min_us=10").unwrap().shortest, Duration::from_micros(10));
        assert_eq!(read("seconds=45&hz=1000").unwrap().hz, 1000);
    }

    #[test]
    fn every_other_query_is_refused_with_the_name_of_the_parameter() {
        for (query, named) in [
            ("seconds=0", "\"seconds\" is 0; it is to be from 1 to 45."),
            ("seconds=46", "\"seconds\" is 46"),
            ("seconds=-1", "seconds"),
            ("seconds=ten", "seconds"),
            ("seconds=99999999999999999999", "seconds"),
            ("hz=0", "\"hz\""),
            ("hz=1001", "\"hz\""),
            ("event=alloc&interval_bytes=4095", "\"interval_bytes\""),
            ("event=wait&min_us=9", "\"min_us\""),
            ("event=alloc&hz=9", "\"hz\" is a parameter of event=cpu."),
            ("min_us=100", "\"min_us\" is a parameter of event=wait."),
            ("interval_bytes=9999", "\"interval_bytes\" is a parameter of event=alloc."),
            ("event=lock", "event"),
            ("output=pdf", "output"),
            ("colour=red", "colour"),
            ("seconds=1&seconds=2", "seconds"),
        ] {
            let refused = read(query).unwrap_err();
            assert!(refused.contains(named) && refused.ends_with('.'), "{query}: {refused}");
        }
    }
}
