//! A DRAM by itself under a trace: one request is offered in every cycle, in order, and held while
//! it is refused.

use core::fmt;

use crate::{
    dram::{
        address::AddressMap,
        controller::DramChannel,
        policy::{ChannelError, Policy},
        request::{Done, Request},
        timing::{Command, DramTiming},
    },
    units::{Owner, Pa},
};

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// The line, shortened.
    pub text: String,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no request: write `R 0xADDRESS` or `W 0xADDRESS`, below 2^52", self.text)
    }
}

impl core::error::Error for BadRequest {}

/// A line of a trace file: `R 0xADDRESS` or `W 0xADDRESS`. `None` for an empty line or one that
/// begins with `#`.
///
/// # Errors
/// [`BadRequest`], for any other line; the caller knows the line's number.
pub fn parse_line(line: &str) -> Result<Option<(Pa, bool)>, BadRequest> {
    let text = line.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let mut words = text.split_ascii_whitespace();
    let write = match words.next() {
        Some("R") => Some(false),
        Some("W") => Some(true),
        _ => None,
    };
    let digits = words.next().and_then(|word| word.strip_prefix("0x"));
    // `from_str_radix` alone would take a sign.
    let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (write, address.filter(|address| address >> 52 == 0), words.next()) {
        (Some(write), Some(address), None) => Ok(Some((Pa(address), write))),
        _ => Err(BadRequest { text: text.chars().take(40).collect() }),
    }
}

/// The result of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceResult {
    /// Requests answered.
    pub requests: u64,
    /// Cycles from the first offer to the last data.
    pub cycles: u64,
    /// Requests that found their row open.
    pub row_hits: u64,
    /// Requests for which another row was closed.
    pub row_conflicts: u64,
}

impl TraceResult {
    /// Bandwidth in megabytes (10^6 bytes) per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for printing")]
    pub fn mb_per_s(&self, bytes_per_request: u64, clock_ps: u64) -> f64 {
        let bytes = (self.requests * bytes_per_request) as f64;
        bytes * 1e6 / (self.cycles.max(1) * clock_ps) as f64
    }
}

/// Runs a trace of (address, is a write) through a controller for each channel of the map.
///
/// # Errors
/// [`ChannelError`] if the memory can't be built.
pub fn run(
    trace: impl IntoIterator<Item = (Pa, bool)>,
    map: &AddressMap,
    timing: DramTiming,
    policy: Policy,
) -> Result<TraceResult, ChannelError> {
    let one = DramChannel::new(map.clone(), timing, policy, 1)?;
    let per_channel = map.banks() >> map.fields().channel.len();
    let mut channels = vec![one; 1 << map.fields().channel.len()];
    let mut cycle = 0;
    let mut last = 0;
    let mut requests = 0;
    let mut done = |d: Done| last = last.max(d.at);
    for (pa, write) in trace {
        let number = if channels.len() == 1 { 0 } else { map.locate(pa).bank / per_channel };
        let channel = &mut channels[number as usize];
        while !channel.has_room(write) {
            let freed = if write { Command::Write } else { Command::Read };
            while let Some((at, command, _)) = channel.step(u64::MAX, &mut done) {
                if command == freed {
                    // A column command in cycle t makes room for an offer in t + 1.
                    cycle = cycle.max(at + 1);
                    break;
                }
            }
        }
        let request = Request { id: requests, pa, owner: Owner(0), write };
        let taken = channel.push(request, cycle, &mut done);
        debug_assert!(taken.is_ok(), "there was room");
        requests += 1;
        cycle += 1;
    }
    for channel in &mut channels {
        while channel.waiting() > 0 && channel.step(u64::MAX, &mut done).is_some() {}
    }
    let sum = |count: fn(&DramChannel) -> u64| channels.iter().map(count).sum();
    Ok(TraceResult {
        requests,
        cycles: last,
        row_hits: sum(|c| c.stats().row_hits),
        row_conflicts: sum(|c| c.stats().row_conflicts),
    })
}
