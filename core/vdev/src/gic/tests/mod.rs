//! Tests of the model with a fake of the list-register hardware and of the physical distributor.

mod deactivation;
mod isolation;
mod properties;
mod races;
mod registers;
mod relayed;
mod reset;
mod signaling;

use super::lr::{Backing, Entry, ListRegisterState, free_of};
use super::{
    Gic, GicAccess, GicArchitecture, Hardware, ListRegisters, Maintenance, ResetStep, Sgi,
    SgiBoard, VcpuMask, decode_sgir,
};
use weir_units::IntId;

/// The list registers of one core, and the virtual CPU interface that a guest drives them with
/// (IHI0069H 4.8: highest priority first, `EOImode` 0, `EOIcount`, maintenance conditions).
pub struct Core<V: GicArchitecture> {
    pub lrs: Vec<V::Raw>,
    /// Number of list registers that the model may use.
    pub used: usize,
    pub maintenance: Maintenance,
    pub eoi_count: u32,
    pub writes: usize,
    /// Interrupts that are acknowledged and not ended: INTID, sender, priority.
    pub running: Vec<(u32, u32, u8)>,
}

impl<V: GicArchitecture> ListRegisters<V> for Core<V> {
    fn read(&self, index: usize) -> V::Raw {
        self.lrs[index]
    }

    fn write(&mut self, index: usize, raw: V::Raw) {
        assert!(index < self.used, "list register {index} of {}", self.used);
        self.writes += 1;
        self.lrs[index] = raw;
    }

    fn empty_mask(&self) -> u32 {
        let mut mask = 0;
        for (i, e) in self.entries().enumerate() {
            if e.state.is_invalid() && !Self::wants_eoi(&e) {
                mask |= 1 << i;
            }
        }
        free_of(mask, self.used)
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        self.maintenance = wanted;
    }

    fn take_eoi_count(&mut self) -> u32 {
        core::mem::take(&mut self.eoi_count)
    }
}

/// A core together with the board.
pub struct Machine<'a, V: GicArchitecture> {
    core: &'a mut Core<V>,
    board: &'a mut Board,
}

impl<V: GicArchitecture> ListRegisters<V> for Machine<'_, V> {
    fn read(&self, index: usize) -> V::Raw {
        self.core.read(index)
    }

    fn write(&mut self, index: usize, raw: V::Raw) {
        self.core.write(index, raw);
    }

    fn clear(&mut self, count: usize) {
        self.core.clear(count);
    }

    fn empty_mask(&self) -> u32 {
        self.core.empty_mask()
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        self.core.set_maintenance(wanted);
    }

    fn take_eoi_count(&mut self) -> u32 {
        self.core.take_eoi_count()
    }
}

impl<V: GicArchitecture> Core<V> {
    pub fn new(count: usize) -> Self {
        Self {
            lrs: vec![V::EMPTY; count],
            used: count,
            maintenance: Maintenance::NONE,
            eoi_count: 0,
            writes: 0,
            running: Vec::new(),
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.lrs.iter().map(|&raw| V::decode(raw))
    }

    fn wants_eoi(e: &Entry) -> bool {
        matches!(e.backing, Backing::Software { eoi: true, .. })
    }

    /// Checks that no INTID is twice in valid list registers, and that no hardware interrupt is
    /// pending and active (IHI0069H 12.4.4).
    pub fn check(&self) {
        let valid: Vec<Entry> = self.entries().filter(|e| !e.state.is_invalid()).collect();
        for (i, e) in valid.iter().enumerate() {
            assert!(valid[i + 1..].iter().all(|f| f.intid.0 != e.intid.0), "twice: {valid:?}");
            if matches!(e.backing, Backing::Hardware { .. }) {
                assert!(!(e.state.pending && e.state.active), "{e:?}");
            }
        }
    }

    fn running_priority(&self) -> u16 {
        self.running.last().map_or(0x100, |r| u16::from(r.2))
    }

    /// Returns the interrupt that an acknowledge would return now.
    pub fn highest(&self) -> Option<(usize, Entry)> {
        let pending = |e: &Entry| e.state == ListRegisterState { pending: true, active: false };
        self.entries()
            .enumerate()
            .filter(|(_, e)| pending(e) && u16::from(e.priority) < self.running_priority())
            .min_by_key(|(_, e)| (e.priority, e.intid.0))
    }

    pub fn acknowledge(&mut self) -> Option<Entry> {
        let (i, entry) = self.highest()?;
        let state = ListRegisterState { pending: false, active: true };
        self.lrs[i] = V::encode(&Entry { state, ..entry });
        let source = match entry.backing {
            Backing::Software { source, .. } => source,
            Backing::Hardware { .. } => 0,
        };
        self.running.push((entry.intid.0, source, entry.priority));
        Some(entry)
    }

    /// Drops the priority of the running interrupt and deactivates it.
    pub fn end(&mut self, board: &mut Board, vcpu: usize) -> Option<u32> {
        let (intid, source, _) = self.running.pop()?;
        let found = self.entries().enumerate().find(|(_, e)| {
            let same_source = match e.backing {
                Backing::Software { source: s, .. } => s == source || intid >= 16,
                Backing::Hardware { .. } => true,
            };
            e.intid.0 == intid && e.state.active && same_source
        });
        if let Some((i, e)) = found {
            let state = ListRegisterState { active: false, ..e.state };
            self.lrs[i] = V::encode(&Entry { state, ..e });
            if let Backing::Hardware { pintid: IntId(pintid) } = e.backing {
                board.line(vcpu, pintid).active = false;
            }
        } else {
            self.eoi_count += 1;
        }
        Some(intid)
    }

    pub fn maintenance_asserted(&self) -> bool {
        let end = self.entries().any(|e| e.state.is_invalid() && Self::wants_eoi(&e));
        let missing = self.maintenance.has(Maintenance::ENTRY_MISSING) && self.eoi_count != 0;
        let only_pending = ListRegisterState { pending: true, active: false };
        let none = self.maintenance.has(Maintenance::NO_PENDING)
            && !self.entries().any(|e| e.state == only_pending);
        end || missing || none
    }
}

/// State of a physical interrupt.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one a register bit")]
pub struct Physical {
    pub enabled: bool,
    pub edge: bool,
    pub latch: bool,
    pub high: bool,
    pub active: bool,
    pub target: usize,
}

impl Physical {
    pub fn is_pending(&self) -> bool {
        self.latch || !self.edge && self.high
    }
}

/// The physical distributor.
pub struct Board {
    private: [[Physical; 32]; 8],
    spis: Vec<Physical>,
    /// The core that runs now. The PPI functions may only be called for it, as on a GICv2; `None`
    /// allows any core.
    pub here: Option<usize>,
    /// Accesses so far.
    pub accesses: usize,
}

impl Board {
    pub fn new() -> Self {
        Self {
            private: [[Physical::default(); 32]; 8],
            spis: vec![Physical::default(); 1024],
            here: None,
            accesses: 0,
        }
    }

    pub fn line(&mut self, vcpu: usize, pintid: u32) -> &mut Physical {
        if pintid < 32 {
            &mut self.private[vcpu][pintid as usize]
        } else {
            &mut self.spis[pintid as usize]
        }
    }

    /// Returns the line for an access by the model, which is counted.
    fn access(&mut self, vcpu: usize, pintid: u32) -> &mut Physical {
        self.accesses += 1;
        self.line(vcpu, pintid)
    }

    fn own(&self, vcpu: usize, pintid: u32) {
        if let Some(here) = self.here {
            assert!(pintid >= 32 || vcpu == here, "PPI {pintid} of {vcpu} touched from {here}");
        }
    }
}

impl<V: GicArchitecture> Hardware<V> for Machine<'_, V> {
    fn set_enabled(&mut self, vcpu: usize, IntId(pintid): IntId, on: bool) {
        self.board.own(vcpu, pintid);
        self.board.access(vcpu, pintid).enabled = on;
    }

    fn set_edge(&mut self, vcpu: usize, IntId(pintid): IntId, edge: bool) {
        assert!(!self.board.line(vcpu, pintid).enabled, "{pintid} is enabled (IHI0069H 12.9.9)");
        self.board.access(vcpu, pintid).edge = edge;
    }

    fn route(&mut self, IntId(pintid): IntId, vcpu: usize) {
        self.board.access(vcpu, pintid).target = vcpu;
    }

    fn pending(&mut self, vcpu: usize, IntId(pintid): IntId) -> bool {
        self.board.access(vcpu, pintid).is_pending()
    }

    fn set_pending(&mut self, vcpu: usize, IntId(pintid): IntId, on: bool) {
        self.board.access(vcpu, pintid).latch = on;
    }

    fn set_active(&mut self, vcpu: usize, IntId(pintid): IntId, on: bool) {
        self.board.access(vcpu, pintid).active = on;
    }
}

/// A VM's cores, board and GIC together.
pub struct Rig<V: GicArchitecture> {
    pub gic: Gic<V>,
    pub sgis: SgiBoard<V>,
    pub cores: Vec<Core<V>>,
    pub board: Board,
    /// Kicks that have not arrived yet.
    pub kicks: VcpuMask,
    /// Whether kicks arrive at once.
    pub prompt: bool,
    pub links: Vec<(u32, u32)>,
    /// Number of physical interrupts that each vCPU's core took.
    pub taken: Vec<usize>,
    /// Number of kicks that each vCPU's core got.
    pub notified: Vec<usize>,
    /// The physical interrupt that each vCPU's core has acknowledged and not yet delivered: it
    /// waits for the VM's lock, and takes nothing else meanwhile.
    pub in_flight: Vec<Option<u32>>,
}

impl<V: GicArchitecture> Rig<V> {
    pub fn new(vcpus: usize, list_registers: usize, links: &[(u32, u32)]) -> Self {
        let mut rig = Self {
            gic: Gic::new(vcpus, list_registers),
            sgis: SgiBoard::new(),
            cores: (0..vcpus).map(|_| Core::new(list_registers)).collect(),
            board: Board::new(),
            kicks: VcpuMask::NONE,
            prompt: true,
            links: links.to_vec(),
            taken: vec![0; vcpus],
            notified: vec![0; vcpus],
            in_flight: vec![None; vcpus],
        };
        for &(intid, pintid) in links {
            rig.gic.link(IntId(intid), IntId(pintid));
        }
        for vcpu in 0..vcpus {
            assert!(rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw)).is_empty());
        }
        rig
    }

    /// Takes all vCPUs off their cores, as the end of a boot does.
    pub fn leave_all(&mut self) {
        for vcpu in 0..self.cores.len() {
            let _ = self.on(vcpu, |gic, _, hw| gic.save(vcpu, hw));
            self.cores[vcpu].running.clear();
        }
    }

    /// Resets the GIC; calls `between` after each step.
    pub fn reset(&mut self, mut between: impl FnMut(&mut Self)) {
        let mut next = Some(ResetStep::default());
        while let Some(step) = next {
            next = self.on(0, |gic, _, hw| gic.reset(step, hw));
            between(self);
        }
    }

    /// Calls the GIC on the core of a vCPU.
    pub fn on<R>(
        &mut self,
        vcpu: usize,
        ask: impl FnOnce(&mut Gic<V>, &SgiBoard<V>, &mut Machine<V>) -> R,
    ) -> R {
        let mut machine = Machine { core: &mut self.cores[vcpu], board: &mut self.board };
        ask(&mut self.gic, &self.sgis, &mut machine)
    }

    /// Calls the GIC on the core of a vCPU while PPIs of other cores are out of reach.
    fn alone(
        &mut self,
        vcpu: usize,
        ask: impl FnOnce(&mut Gic<V>, &SgiBoard<V>, &mut Machine<V>) -> VcpuMask,
    ) {
        self.board.here = Some(vcpu);
        let more = self.on(vcpu, ask);
        self.board.here = None;
        self.note(more);
    }

    fn note(&mut self, mask: VcpuMask) {
        for vcpu in mask.iter() {
            self.notified[vcpu] += 1;
        }
        self.kicks = self.kicks | mask;
    }

    /// Handles the kicks that a call returned, and lets the machine come to rest.
    pub fn kick(&mut self, mask: VcpuMask) {
        self.note(mask);
        self.run();
    }

    pub fn arrive(&mut self, vcpu: usize) {
        if self.kicks.contains(vcpu) && self.in_flight[vcpu].is_none() {
            self.kicks = self.kicks.without(vcpu);
            self.alone(vcpu, |gic, sgis, hw| gic.drain(vcpu, sgis, hw));
        }
    }

    /// Handles maintenance and physical interrupts, and kicks if they are prompt, until nothing
    /// changes.
    pub fn run(&mut self) {
        for round in 0.. {
            assert!(round < 200, "does not come to rest");
            let mut moved = false;
            for vcpu in 0..self.cores.len() {
                self.cores[vcpu].check();
                if self.in_flight[vcpu].is_some() {
                    continue;
                }
                if self.cores[vcpu].maintenance_asserted() {
                    moved = true;
                    self.alone(vcpu, |gic, _, hw| gic.refresh(vcpu, hw));
                }
                while self.take(vcpu) {
                    moved = true;
                    self.deliver(vcpu);
                }
                if self.prompt && self.kicks.contains(vcpu) {
                    moved = true;
                    self.arrive(vcpu);
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets the core of a vCPU acknowledge a physical interrupt. Returns whether there is one.
    pub fn take(&mut self, vcpu: usize) -> bool {
        for &(intid, pintid) in &self.links {
            let line = self.board.line(vcpu, pintid);
            let here = pintid < 32 || line.target == vcpu;
            if here && line.enabled && line.is_pending() && !line.active {
                (line.active, line.latch) = (true, false);
                self.taken[vcpu] += 1;
                self.in_flight[vcpu] = Some(intid);
                return true;
            }
        }
        false
    }

    /// Lets the core of a vCPU deliver the interrupt that it has acknowledged.
    pub fn deliver(&mut self, vcpu: usize) {
        if let Some(intid) = self.in_flight[vcpu].take() {
            self.alone(vcpu, |gic, _, hw| gic.deliver_hw(vcpu, IntId(intid), hw));
        }
    }

    /// Lets all kicks arrive.
    pub fn settle(&mut self) {
        let was = core::mem::replace(&mut self.prompt, true);
        self.run();
        self.prompt = was;
    }

    fn fold(&mut self, vcpus: VcpuMask) {
        for vcpu in vcpus.iter() {
            // A core answers only after it has delivered the interrupt that it had acknowledged.
            self.deliver(vcpu);
            self.gic.fold(vcpu, &self.cores[vcpu]);
        }
    }

    pub fn load(&mut self, access: GicAccess) -> u64 {
        self.fold(self.gic.remote(&access, false));
        self.on(access.vcpu, |gic, _, hw| gic.read(&access, hw))
    }

    pub fn store(&mut self, access: GicAccess, value: u64) {
        if access.is_sgir::<V>() {
            let sgi =
                decode_sgir(value as u32, access.vcpu, VcpuMask::first(self.gic.vcpu_count()));
            return self.send(access.vcpu, sgi);
        }
        self.fold(self.gic.remote(&access, true));
        let kick = self.on(access.vcpu, |gic, _, hw| gic.write(&access, value, hw));
        assert!(!kick.contains(access.vcpu));
        self.kick(kick);
    }

    /// Posts an SGI; a vCPU takes an SGI to itself at once.
    pub fn send(&mut self, vcpu: usize, sgi: Sgi) {
        let notify = self.sgis.post(vcpu, sgi);
        if notify.contains(vcpu) {
            self.kicks = self.kicks | VcpuMask::only(vcpu);
            self.arrive(vcpu);
        }
        self.kick(notify.without(vcpu));
    }

    pub fn read(&mut self, vcpu: usize, offset: u64, size: u32) -> u64 {
        self.load(GicAccess { vcpu, redistributor: None, offset, size })
    }

    pub fn write(&mut self, vcpu: usize, offset: u64, size: u32, value: u64) {
        self.store(GicAccess { vcpu, redistributor: None, offset, size }, value);
    }

    pub fn redist_read(&mut self, vcpu: usize, target: usize, offset: u64, size: u32) -> u64 {
        self.load(GicAccess { vcpu, redistributor: Some(target), offset, size })
    }

    pub fn redist_write(&mut self, vcpu: usize, target: usize, offset: u64, size: u32, value: u64) {
        self.store(GicAccess { vcpu, redistributor: Some(target), offset, size }, value);
    }

    /// Sets the input line of an emulated SPI.
    pub fn set_level(&mut self, intid: u32, high: bool) {
        let kick = self.gic.set_level(IntId(intid), high);
        self.kick(kick);
    }

    /// Makes one edge on the input line of an emulated SPI.
    pub fn pulse(&mut self, intid: u32) {
        self.set_level(intid, true);
        self.set_level(intid, false);
    }

    /// Writes a banked register: in the redistributor of `target` on GICv3, in the distributor as
    /// `target` sees it on GICv2.
    pub fn bank_write(&mut self, vcpu: usize, target: usize, offset: u64, size: u32, value: u64) {
        if V::V3 {
            self.redist_write(vcpu, target, offset + 0x1_0000, size, value);
        } else {
            self.write(target, offset, size, value);
        }
    }

    pub fn bank_read(&mut self, vcpu: usize, target: usize, offset: u64, size: u32) -> u64 {
        if V::V3 {
            self.redist_read(vcpu, target, offset + 0x1_0000, size)
        } else {
            self.read(target, offset, size)
        }
    }

    /// Writes word `w` of a bitmap register as vCPU `vcpu` sees it.
    pub fn word_write(&mut self, vcpu: usize, base: u64, w: usize, value: u32) {
        if w == 0 {
            self.bank_write(vcpu, vcpu, base, 4, u64::from(value));
        } else {
            self.write(vcpu, base + 4 * w as u64, 4, u64::from(value));
        }
    }

    pub fn word_read(&mut self, vcpu: usize, base: u64, w: usize) -> u32 {
        (if w == 0 {
            self.bank_read(vcpu, vcpu, base, 4)
        } else {
            self.read(vcpu, base + 4 * w as u64, 4)
        }) as u32
    }

    /// Ends the running interrupt of a vCPU.
    pub fn end(&mut self, vcpu: usize) -> Option<u32> {
        let ended = self.cores[vcpu].end(&mut self.board, vcpu);
        self.run();
        ended
    }

    /// Deactivates an interrupt whose priority has dropped.
    pub fn deactivate(&mut self, vcpu: usize, intid: u32) {
        if let Some((access, bit)) = GicAccess::deactivation::<V>(vcpu, intid) {
            self.store(access, bit);
        }
    }

    pub fn acknowledge(&mut self, vcpu: usize) -> Option<Entry> {
        let entry = self.cores[vcpu].acknowledge();
        self.run();
        entry
    }
}

/// Routes an SPI to vCPU `to`, by a store of vCPU `vcpu`.
fn route<V: GicArchitecture>(rig: &mut Rig<V>, vcpu: usize, intid: u32, to: u64) {
    if V::V3 {
        rig.write(vcpu, 0x6000 + 8 * u64::from(intid), 8, to);
    } else {
        rig.write(vcpu, 0x800 + u64::from(intid), 1, 1 << to);
    }
}
