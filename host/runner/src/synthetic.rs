//! Wires for tests, made up frame by frame.

use weir_trace::wire::{
    Boots, ConsoleMark, DENIALS, DLE, Denials, EXIT_CAUSES, FAULT_KINDS, FaultKind, FlowCounts,
    FrameKind, HYPERVISOR, VcpuCounters, VcpuState, VmState, What, WireEvent, frame,
};

/// A wire in the making.
#[derive(Clone, Debug, Default)]
pub struct SyntheticWire(Vec<u8>);

impl SyntheticWire {
    /// What has been put on it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A mark: from here on the text is of `vm`.
    pub fn mark(self, time_ns: u64, vm: u32) -> Self {
        self.mark_dropped(time_ns, vm, 0)
    }

    /// A mark that owns up to lost bytes.
    pub fn mark_dropped(mut self, time_ns: u64, vm: u32, dropped: u32) -> Self {
        frame(FrameKind::Mark, &ConsoleMark { time_ns, vm, dropped }, |part| {
            self.0.extend_from_slice(part);
        });
        self
    }

    /// Console text.
    pub fn text(self, text: &str) -> Self {
        self.raw_text(text.as_bytes())
    }

    /// Console bytes.
    pub fn raw_text(mut self, text: &[u8]) -> Self {
        for &byte in text {
            if byte == DLE {
                self.0.push(DLE);
            }
            self.0.push(byte);
        }
        self
    }

    /// A line of `vm` that is complete at `time_ns`.
    pub fn line(self, time_ns: u64, vm: u32, text: &str) -> Self {
        self.mark(time_ns, vm).text(text).text("\n").mark(time_ns, vm)
    }

    /// Bytes that are none of the above.
    pub fn garbage(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An event of the whole system, which runs the image of this identity.
    pub fn system_event(mut self, time_ns: u64, what: What, image_id: u64) -> Self {
        let event = WireEvent {
            time_ns,
            what: what as u16,
            vm: HYPERVISOR,
            syndrome: image_id,
            ..WireEvent::default()
        };
        frame(FrameKind::Event, &event, |part| self.0.extend_from_slice(part));
        self
    }

    /// An event.
    pub fn event(mut self, time_ns: u64, what: What, vm: u8, detail: u32) -> Self {
        let event = WireEvent {
            time_ns,
            what: what as u16,
            vm,
            vcpu: 0,
            detail,
            syndrome: 0,
            address: 0,
            pc: 0,
            guest_syndrome: 0,
            guest_elr: 0,
        };
        frame(FrameKind::Event, &event, |part| self.0.extend_from_slice(part));
        self
    }

    /// A fault.
    pub fn fault(mut self, time_ns: u64, vm: u8, kind: FaultKind, syndrome: u64) -> Self {
        let event = WireEvent {
            time_ns,
            what: What::VmFault as u16,
            vm,
            vcpu: 0,
            detail: kind as u32,
            syndrome,
            address: 0xdead_0000,
            pc: 0x4000_1234,
            guest_syndrome: 0,
            guest_elr: 0,
        };
        frame(FrameKind::Event, &event, |part| self.0.extend_from_slice(part));
        self
    }

    /// Counters, `n` for each cause and interrupt.
    pub fn counters(mut self, time_ns: u64, vm: u8, vcpu: u8, n: u64) -> Self {
        let counters = VcpuCounters {
            time_ns,
            vm,
            vcpu,
            state: VcpuState::On as u8,
            reserved: 0,
            restarts: 0,
            exits: [n; EXIT_CAUSES],
            injected: n,
        };
        frame(FrameKind::Counters, &counters, |part| self.0.extend_from_slice(part));
        self
    }

    /// What became of VM `vm`: `faults` of the first kind, `restarts`, and records lost.
    pub fn boots(
        mut self,
        time_ns: u64,
        (vm, state): (u8, VmState),
        [faults, restarts, lost]: [u32; 3],
    ) -> Self {
        let mut boots = Boots {
            time_ns,
            vm,
            state: state as u8,
            reserved: [0; 2],
            restarts,
            resets: 0,
            lost,
            faults: [0; FAULT_KINDS],
        };
        boots.faults[0] = faults.into();
        frame(FrameKind::Boots, &boots, |part| self.0.extend_from_slice(part));
        self
    }

    /// Counts of a flow.
    pub fn flow(self, time_ns: u64, flow: u32, counts: [u64; 3]) -> Self {
        self.late_flow(time_ns, flow, counts, 0)
    }

    /// The same, with packets that missed their deadline.
    pub fn late_flow(
        mut self,
        time_ns: u64,
        flow: u32,
        [packets, lost, observed_max_ns]: [u64; 3],
        late: u64,
    ) -> Self {
        let counts = FlowCounts {
            time_ns,
            flow,
            dropped: 0,
            packets,
            lost,
            observed_max_ns,
            least_ns: observed_max_ns / 2,
            late,
            observed_max_packet: packets,
            observed_max_arrived_ns: time_ns,
        };
        frame(FrameKind::Flow, &counts, |part| self.0.extend_from_slice(part));
        self
    }

    /// Denials, `n` of each.
    pub fn denials(mut self, time_ns: u64, vm: u32, n: u64) -> Self {
        let denials = Denials { time_ns, vm, reserved: 0, counts: [n; DENIALS] };
        frame(FrameKind::Denials, &denials, |part| self.0.extend_from_slice(part));
        self
    }
}
