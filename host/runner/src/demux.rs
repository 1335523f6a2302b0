//! The wire taken apart into consoles, lines and records.
//!
//! A pure function of the bytes: what it gives does not depend on how they were cut into reads, nor
//! on the host's clock.

use weir_trace::{
    decode::{Decoder, WirePiece},
    wire::{
        Boots, ConsoleMark, Denials, FlowCounts, HYPERVISOR, PortCounts, TraceRecords,
        VcpuCounters, What, WireEvent,
    },
};

/// Longest console line, in bytes; a longer one is cut into several.
pub const LINE_LIMIT: usize = 16 * 1024;
/// Most lines that wait for a mark. The hypervisor sends one behind each line, so that there are
/// many only when marks are lost; then lines get the time of the last frame.
const WAITING: usize = 64;
/// The part of an unfinished line that is searched, in bytes from its end.
const TAIL: usize = 1024;

/// The VM of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleSource {
    /// The VM at this place in the system file.
    Vm(usize),
    /// The hypervisor itself.
    Hypervisor,
}

/// The decoded contents of the wire, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireStep {
    /// A console byte, as the guest wrote it.
    Byte(ConsoleSource, u8),
    /// A line is complete; `text` is cleaned for a person. The time is that of the mark behind it.
    Line { source: ConsoleSource, text: String, time_ns: u64 },
    /// The line that has grown so far without an end, such as a prompt; its last [`TAIL`] bytes.
    Unfinished { source: ConsoleSource, text: String, time_ns: u64 },
    /// Something happened to a VM or to the system.
    Event(WireEvent),
    /// The counters of a vCPU.
    Counters(VcpuCounters),
    /// The denials of a VM.
    Denials(Denials),
    /// The outcome of a VM.
    Boots(Boots),
    /// Counts of a flow.
    Flow(FlowCounts),
    /// Counts of a network device.
    Port(PortCounts),
    /// Records of a core's trace.
    Trace(Box<TraceRecords>),
    /// The hypervisor had to throw console bytes of this VM away.
    Dropped { source: ConsoleSource, bytes: u32, time_ns: u64 },
    /// A frame did not survive the wire, or names a VM that does not exist.
    Damaged,
    /// The hypervisor started again: the board was reset.
    Reset,
}

#[derive(Clone, Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    grown: bool,
}

/// Takes the wire apart.
#[derive(Clone, Debug)]
pub struct Demux {
    decoder: Decoder,
    source: ConsoleSource,
    /// The line that each VM is writing; the hypervisor's comes last.
    lines: Vec<Line>,
    /// Lines that wait for the mark with their time.
    complete: Vec<(ConsoleSource, Vec<u8>)>,
    time_ns: u64,
    /// The hypervisor has reported its start.
    started: bool,
}

impl Demux {
    /// For a system of `vms` VMs.
    pub fn new(vms: usize) -> Self {
        Self {
            decoder: Decoder::default(),
            source: ConsoleSource::Hypervisor,
            lines: vec![Line::default(); vms + 1],
            complete: Vec::new(),
            time_ns: 0,
            started: false,
        }
    }

    /// The latest time on the wire, in nanoseconds since the hypervisor started.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Whether a VM has begun a line that has no end yet.
    pub fn is_within_line(&self) -> bool {
        let vms = self.lines.len() - 1;
        self.lines.iter().take(vms).any(|line| !line.bytes.is_empty())
    }

    fn slot(&self, source: ConsoleSource) -> usize {
        match source {
            ConsoleSource::Vm(vm) => vm,
            ConsoleSource::Hypervisor => self.lines.len() - 1,
        }
    }

    fn source(&self, vm: u32) -> Option<ConsoleSource> {
        if vm == u32::from(HYPERVISOR) {
            return Some(ConsoleSource::Hypervisor);
        }
        let vm = vm as usize;
        (vm + 1 < self.lines.len()).then_some(ConsoleSource::Vm(vm))
    }

    /// Takes the next byte and puts what it means at the end of `steps`.
    pub fn push(&mut self, byte: u8, steps: &mut Vec<WireStep>) {
        self.decoder.push(byte);
        while let Some(piece) = self.decoder.next_piece() {
            self.piece(&piece, steps);
        }
    }

    fn piece(&mut self, piece: &WirePiece, steps: &mut Vec<WireStep>) {
        match *piece {
            WirePiece::Byte(byte) => self.console(byte, steps),
            WirePiece::Mark(mark) => self.mark(mark, steps),
            WirePiece::Event(event) => {
                if event.what == What::SystemStart as u16 {
                    self.start(event.time_ns, steps);
                }
                self.at(event.time_ns, steps);
                let known = self.source(u32::from(event.vm)).is_some();
                steps.push(if known { WireStep::Event(event) } else { WireStep::Damaged });
            }
            WirePiece::Counters(counters) => {
                self.at(counters.time_ns, steps);
                let known =
                    matches!(self.source(u32::from(counters.vm)), Some(ConsoleSource::Vm(_)));
                steps.push(if known { WireStep::Counters(counters) } else { WireStep::Damaged });
            }
            WirePiece::Boots(boots) => {
                self.at(boots.time_ns, steps);
                let known = matches!(self.source(boots.vm.into()), Some(ConsoleSource::Vm(_)));
                steps.push(if known { WireStep::Boots(boots) } else { WireStep::Damaged });
            }
            WirePiece::Denials(denials) => {
                self.at(denials.time_ns, steps);
                let known = matches!(self.source(denials.vm), Some(ConsoleSource::Vm(_)));
                steps.push(if known { WireStep::Denials(denials) } else { WireStep::Damaged });
            }
            WirePiece::Flow(flow) => {
                self.at(flow.time_ns, steps);
                steps.push(WireStep::Flow(flow));
            }
            WirePiece::Port(port) => {
                self.at(port.time_ns, steps);
                let known = matches!(self.source(port.vm), Some(ConsoleSource::Vm(_)));
                steps.push(if known { WireStep::Port(port) } else { WireStep::Damaged });
            }
            WirePiece::Trace(records) => steps.push(WireStep::Trace(Box::new(records))),
            WirePiece::Damaged => self.damaged(steps),
        }
    }

    /// Takes the start of the hypervisor. A second one is that of another boot, and time begins
    /// again.
    fn start(&mut self, time_ns: u64, steps: &mut Vec<WireStep>) {
        if self.started && time_ns < self.time_ns {
            self.release(steps);
            for line in &mut self.lines {
                *line = Line::default();
            }
            self.time_ns = time_ns;
            steps.push(WireStep::Reset);
        }
        self.started = true;
    }

    /// Takes a damaged frame. It may have been a mark, so no VM owns the bytes up to the next mark,
    /// and the line that a VM is writing has a gap.
    fn damaged(&mut self, steps: &mut Vec<WireStep>) {
        let slot = self.slot(self.source);
        if let Some(line) = self.lines.get_mut(slot).filter(|line| !line.bytes.is_empty()) {
            line.bytes.extend("\u{fffd}".bytes());
        }
        self.source = ConsoleSource::Hypervisor;
        steps.push(WireStep::Damaged);
    }

    fn console(&mut self, byte: u8, steps: &mut Vec<WireStep>) {
        steps.push(WireStep::Byte(self.source, byte));
        let slot = self.slot(self.source);
        let Some(line) = self.lines.get_mut(slot) else {
            return;
        };
        if byte != b'\n' {
            line.bytes.push(byte);
            line.grown = true;
        }
        if byte == b'\n' || line.bytes.len() >= LINE_LIMIT {
            let bytes = std::mem::take(&mut line.bytes);
            line.grown = false;
            self.complete.push((self.source, bytes));
            if self.complete.len() >= WAITING {
                self.release(steps);
            }
        }
    }

    fn mark(&mut self, mark: ConsoleMark, steps: &mut Vec<WireStep>) {
        self.at(mark.time_ns, steps);
        let Some(source) = self.source(mark.vm) else {
            steps.push(WireStep::Damaged);
            return;
        };
        self.source = source;
        if mark.dropped > 0 {
            let time_ns = self.time_ns;
            steps.push(WireStep::Dropped { source, bytes: mark.dropped, time_ns });
        }
    }

    /// Takes a frame with a time: lines that were complete before it now have it.
    fn at(&mut self, time_ns: u64, steps: &mut Vec<WireStep>) {
        // Cores stamp their frames before they queue for the wire; it never runs backward here.
        self.time_ns = self.time_ns.max(time_ns);
        self.release(steps);
        let time_ns = self.time_ns;
        let source = self.source;
        let slot = self.slot(source);
        if let Some(line) = self.lines.get_mut(slot).filter(|line| line.grown) {
            line.grown = false;
            let tail = line.bytes.len().saturating_sub(TAIL);
            let text = clean(&line.bytes[tail..]);
            steps.push(WireStep::Unfinished { source, text, time_ns });
        }
    }

    /// Gives out the lines that are complete.
    fn release(&mut self, steps: &mut Vec<WireStep>) {
        let time_ns = self.time_ns;
        for (source, bytes) in self.complete.drain(..) {
            steps.push(WireStep::Line { source, text: clean(&bytes), time_ns });
        }
    }

    /// Ends the wire: lines without a mark or without an end get the last time.
    pub fn finish(&mut self, steps: &mut Vec<WireStep>) {
        let time_ns = self.time_ns;
        self.at(time_ns, steps);
        let vms = self.lines.len() - 1;
        for (slot, line) in self.lines.iter_mut().enumerate() {
            if !line.bytes.is_empty() {
                let source =
                    if slot == vms { ConsoleSource::Hypervisor } else { ConsoleSource::Vm(slot) };
                let text = clean(&std::mem::take(&mut line.bytes));
                steps.push(WireStep::Line { source, text, time_ns });
            }
        }
    }
}

/// Returns a line for a person's terminal: without escape sequences, control characters but tabs,
/// and bidirectional formatting, and with what is not UTF-8 replaced. A guest must not control the
/// terminal.
pub fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let printable = anstream::adapter::strip_str(&text).to_string();
    printable
        .chars()
        .filter(|&character| character != '\n' && !weir_model::is_hidden(character))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::SyntheticWire;
    use proptest::prelude::*;
    use weir_trace::wire::What;

    fn steps(vms: usize, bytes: &[u8]) -> Vec<WireStep> {
        let mut demux = Demux::new(vms);
        let mut steps = Vec::new();
        for &byte in bytes {
            demux.push(byte, &mut steps);
        }
        demux.finish(&mut steps);
        steps
    }

    fn lines(steps: &[WireStep]) -> Vec<(ConsoleSource, &str, u64)> {
        steps
            .iter()
            .filter_map(|step| match step {
                WireStep::Line { source, text, time_ns } => {
                    Some((*source, text.as_str(), *time_ns))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_line_has_the_time_of_the_mark_behind_it() {
        let wire = SyntheticWire::default()
            .mark(5, 0)
            .text("one\r\n")
            .mark(9, 1)
            .text("two\n")
            .mark(12, 1);
        assert_eq!(
            lines(&steps(2, wire.bytes())),
            [(ConsoleSource::Vm(0), "one", 9), (ConsoleSource::Vm(1), "two", 12)]
        );
    }

    #[test]
    fn lines_of_two_vms_mix_byte_by_byte() {
        let wire = SyntheticWire::default()
            .mark(1, 0)
            .text("a")
            .mark(2, 1)
            .text("x")
            .mark(3, 0)
            .text("b\n")
            .mark(4, 1)
            .text("y\n")
            .mark(5, 1);
        assert_eq!(
            lines(&steps(2, wire.bytes())),
            [(ConsoleSource::Vm(0), "ab", 4), (ConsoleSource::Vm(1), "xy", 5)]
        );
    }

    #[test]
    fn a_prompt_is_seen_at_the_next_frame() {
        let wire = SyntheticWire::default().mark(1, 0).text("=> ").counters(7, 0, 0, 0);
        let prompt =
            WireStep::Unfinished { source: ConsoleSource::Vm(0), text: "=> ".into(), time_ns: 7 };
        assert!(steps(1, wire.bytes()).contains(&prompt));
    }

    #[test]
    fn a_line_lasts_until_its_end_whoever_writes_between() {
        let mut demux = Demux::new(2);
        let mut feed = |wire: SyntheticWire| {
            wire.bytes().iter().for_each(|&byte| demux.push(byte, &mut Vec::new()));
            demux.is_within_line()
        };
        assert!(!feed(SyntheticWire::default().text("weir")), "the hypervisor's is no VM's");
        assert!(feed(SyntheticWire::default().mark(1, 0).text("on")));
        assert!(feed(SyntheticWire::default().line(2, 1, "two")));
        assert!(!feed(SyntheticWire::default().mark(3, 0).text("e\n")));
    }

    #[test]
    fn text_before_the_first_mark_is_the_hypervisors() {
        let found = steps(1, b"weir: no EL2\r\n");
        assert_eq!(lines(&found), [(ConsoleSource::Hypervisor, "weir: no EL2", 0)]);
    }

    #[test]
    fn a_vm_that_does_not_exist_is_damage() {
        let wire =
            SyntheticWire::default().mark(1, 7).event(2, What::VmStart, 9, 0).counters(3, 4, 0, 0);
        let damaged =
            steps(1, wire.bytes()).iter().filter(|step| **step == WireStep::Damaged).count();
        assert_eq!(damaged, 3);
    }

    #[test]
    fn dropped_bytes_are_reported() {
        let wire = SyntheticWire::default().mark_dropped(4, 0, 16);
        let dropped = WireStep::Dropped { source: ConsoleSource::Vm(0), bytes: 16, time_ns: 4 };
        assert_eq!(steps(1, wire.bytes()), [dropped]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let wire =
            SyntheticWire::default().mark(1, 0).text(&"x".repeat(2 * LINE_LIMIT + 1)).mark(2, 0);
        let found = steps(1, wire.bytes());
        let lengths: Vec<usize> = lines(&found).iter().map(|line| line.1.len()).collect();
        assert_eq!(lengths, [LINE_LIMIT, LINE_LIMIT, 1]);
    }

    #[test]
    fn lines_do_not_wait_for_ever_for_a_mark() {
        let wire = SyntheticWire::default().mark(3, 0).text(&"line\n".repeat(WAITING));
        let (mut demux, mut found) = (Demux::new(1), Vec::new());
        for &byte in wire.bytes() {
            demux.push(byte, &mut found);
        }
        assert_eq!(lines(&found), [(ConsoleSource::Vm(0), "line", 3); WAITING]);
    }

    #[test]
    fn a_guest_cannot_drive_the_terminal() {
        assert_eq!(
            clean(b"\x1b[31mred\x1b[0m\x07\x1b]0;title\x07 \xff\ttab\xe2\x80\xae\r"),
            "red \u{fffd}\ttab"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            steps(3, &bytes);
        }

        #[test]
        fn every_console_byte_comes_out_once(
            texts in
                prop::collection::vec((0u32..3, prop::collection::vec(any::<u8>(), 0..40)), 0..40),
        ) {
            let mut wire = SyntheticWire::default();
            let mut sent = vec![Vec::new(); 3];
            for (time, (vm, text)) in texts.iter().enumerate() {
                wire = wire.mark(time as u64, *vm).raw_text(text);
                sent[*vm as usize].extend_from_slice(text);
            }
            let mut got = vec![Vec::new(); 3];
            for step in steps(3, wire.bytes()) {
                if let WireStep::Byte(ConsoleSource::Vm(vm), byte) = step {
                    got[vm].push(byte);
                }
            }
            prop_assert_eq!(got, sent);
        }
    }
}
