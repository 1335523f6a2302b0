//! Runs a system on a board that is connected by a serial line.

use super::{
    Run, RunOptions, load,
    outcome::{self, judge_report},
    running::{Peer, Running},
};
use crate::{
    board::ExpectedImage, kept::Traced, record::RunRecord, report::End, serial::SerialLine,
    session::ImageNamed, show, wire_trace::WireTrace,
};
use std::time::{Instant, SystemTime};
use weir_image::{Failure, Result, needs_plugin};
use weir_model::System;
use weir_report::{run::RunFacts, trace};

/// Listens to a board until the expected lines are printed, the time elapses or the system stops.
/// The user starts the board, or [`RunOptions::loader`].
pub(super) fn run(
    system: &System,
    serial: &SerialLine,
    options: &RunOptions,
    console: &mut dyn super::Console,
) -> Result<Run> {
    if needs_plugin(system) {
        return Err(Failure::call(
            "a budget has source = \"counter-page\", which only QEMU's plug-in writes: on a board \
             use the PMU",
        ));
    }
    let bytes = super::image(system, options)?;
    let origin = (system.path.as_path(), system.platform().name.as_str());
    let image = ExpectedImage::new(&bytes, options.image_file.as_deref(), origin)?;
    let image_id = image.id();
    let link = serial.open()?;
    let record = RunRecord::create(&options.environment, system)?;
    let (started, begun) = (SystemTime::now(), Instant::now());
    if let Some(loader) = &options.loader {
        // A file that the user names has the format that the user needs.
        let is_ready = options.image_file.is_some();
        let file = if is_ready { bytes } else { loader.format.wrap(bytes, system)? };
        load::load(&loader.command, &file, &record, options)?;
    } else {
        console.note(&format!(
            "listening on {serial}: start {} on {} now, or reset the board",
            weir_image::name(system),
            system.platform().name
        ));
        // A board that already runs answers with its counters.
        link.ask_for_report();
    }
    let peer = Peer::Board(link, image, serial.to_string());
    let mut run = Running::new(options, system, peer, record, console)?;
    if options.serial_trace {
        run.trace = Some(WireTrace::new(system, run.record.directory())?);
    }
    let (end, trouble) = run.carry_on()?;
    let is_judged = matches!(end, End::AllMet | End::TimeOver | End::SystemStop);
    if is_judged && run.session.image() == ImageNamed::Unknown {
        return Err(Failure::environment(format!(
            "the board on {serial} did not name the image that it runs (expected \
             {image_id:016x})\n  reset the board while weir listens"
        )));
    }
    let Running { session, mut record, peer, hub, wire_bytes, trace, .. } = run;
    hub.close();
    peer.end();
    let mut report = session.report(end);
    let path = record.path(trace::file::NAME);
    let trace = trace.map(|trace| trace.finish(&path)).transpose()?;
    judge_report(&mut report, options, system, trace.map(|_| path))?;
    record.finish(&report, &show::summary(&report))?;
    record.write_json(
        "run.json",
        RunFacts {
            overheads: options.overheads.clone(),
            serial: Some(serial.to_string()),
            image_id: Some(format!("{image_id:016x}")),
            trace: trace.map(Traced::size),
            ..super::facts(system, started, begun.elapsed())
        },
    )?;
    let trouble = match end {
        End::MachineGone => Some(format!("{serial} was closed: is the adapter still connected?")),
        _ if wire_bytes == 0 => Some(format!(
            "nothing came from {serial}: check the wiring, the rate, and that the board was started"
        )),
        _ => trouble,
    };
    let (status, trouble) = outcome::status(&report, options, trouble, None, &record);
    let directory = record.directory().to_owned();
    Ok(Run { report, directory, status, trouble, trace })
}
