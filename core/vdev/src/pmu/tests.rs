use super::*;
use proptest::prelude::*;

/// Counters that keep their values; event counters that the guest was not granted have another
/// owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fake {
    values: Vec<u32>,
    types: Vec<u32>,
    cycles: u64,
    filter: u32,
    long_cycles: bool,
    enabled: u32,
    interrupts: u32,
    overflowed: u32,
    user: u32,
}

impl Fake {
    fn new(count: usize) -> Self {
        Self { values: vec![7; count], types: vec![7; count], cycles: 7, ..Self::default() }
    }
}

// An access to a counter that was not granted panics here.
impl GrantedCounters for Fake {
    fn read(&mut self, n: usize) -> u32 {
        self.values[n]
    }
    fn write(&mut self, n: usize, value: u32) {
        self.values[n] = value;
    }
    fn read_cycles(&mut self) -> u64 {
        self.cycles
    }
    fn write_cycles(&mut self, value: u64) {
        self.cycles = value;
    }
    fn set_type(&mut self, n: usize, kind: u32) {
        self.types[n] = kind;
    }
    fn set_filter(&mut self, filter: u32) {
        self.filter = filter;
    }
    fn set_long_cycles(&mut self, long: bool) {
        self.long_cycles = long;
    }
    fn has_long_cycles(&mut self) -> bool {
        self.long_cycles
    }
    fn set_enabled(&mut self, mask: u32) {
        self.enabled = mask;
    }
    fn set_interrupts(&mut self, mask: u32) {
        self.interrupts = mask;
    }
    fn overflowed(&mut self) -> u32 {
        self.overflowed
    }
    fn clear_overflowed(&mut self, mask: u32) {
        self.overflowed &= !mask;
    }
    fn set_overflowed(&mut self, mask: u32) {
        self.overflowed |= mask;
    }
    fn events(&mut self, register: u8) -> u64 {
        0xffff_ffff_0000_0100 | u64::from(register)
    }
    fn set_user(&mut self, user: u32) {
        self.user = user;
    }
}

const PMCR: [u8; 5] = [3, 3, 9, 12, 0];
const CNTENSET: [u8; 5] = [3, 3, 9, 12, 1];
const CNTENCLR: [u8; 5] = [3, 3, 9, 12, 2];
const OVSCLR: [u8; 5] = [3, 3, 9, 12, 3];
const SWINC: [u8; 5] = [3, 3, 9, 12, 4];
const SELR: [u8; 5] = [3, 3, 9, 12, 5];
const CEID1: [u8; 5] = [3, 3, 9, 12, 7];
const CCNTR: [u8; 5] = [3, 3, 9, 13, 0];
const XEVTYPER: [u8; 5] = [3, 3, 9, 13, 1];
const XEVCNTR: [u8; 5] = [3, 3, 9, 13, 2];
const USERENR: [u8; 5] = [3, 3, 9, 14, 0];
const OVSSET: [u8; 5] = [3, 3, 9, 14, 3];
const INTENSET: [u8; 5] = [3, 0, 9, 14, 1];
const INTENCLR: [u8; 5] = [3, 0, 9, 14, 2];
const CCFILTR: [u8; 5] = [3, 3, 14, 15, 7];

const fn evcntr(n: u8) -> [u8; 5] {
    [3, 3, 14, 8 + (n >> 3), n & 7]
}

const fn evtyper(n: u8) -> [u8; 5] {
    [3, 3, 14, 12 + (n >> 3), n & 7]
}

struct Guest(VirtualPmu, Fake);

impl Guest {
    fn new(count: u8) -> Self {
        let mut guest = Self(VirtualPmu::new(count), Fake::new(count.into()));
        guest.0.reset(&mut guest.1);
        guest
    }

    fn write(&mut self, register: [u8; 5], value: u64) -> bool {
        let outcome =
            self.0.access(SysRegAccess::new(register, 0, true), value, false, &mut self.1);
        assert_eq!(outcome, Some(PmuOutcome::Written), "{register:?}");
        self.0.line(&mut self.1)
    }

    fn read(&mut self, register: [u8; 5]) -> u64 {
        match self.0.access(SysRegAccess::new(register, 0, false), 0, false, &mut self.1) {
            Some(PmuOutcome::Read(value)) => value,
            other => panic!("{register:?}: {other:?}"),
        }
    }
}

#[test]
fn a_reset_stops_and_clears_all_that_is_granted() {
    let mut guest = Guest::new(2);
    for (register, value) in
        [(PMCR, E), (CNTENSET, !0), (INTENSET, !0), (OVSSET, !0), (USERENR, !0)]
    {
        guest.write(register, value);
    }
    guest.write(evtyper(1), 0x8000_0008);
    guest.write(evcntr(1), 9);
    guest.0.reset(&mut guest.1);
    let reset = Fake { values: vec![0; 2], types: vec![0; 2], ..Fake::default() };
    assert_eq!(guest.1, Fake { long_cycles: true, ..reset });
    assert_eq!(
        [PMCR, CNTENSET, INTENSET, USERENR].map(|its| guest.read(its)),
        [LC | 2 << 11, 0, 0, 0]
    );
}

#[test]
fn a_counter_runs_if_it_and_all_are_enabled() {
    let mut guest = Guest::new(3);
    guest.write(CNTENSET, !0);
    assert_eq!((guest.read(CNTENSET), guest.1.enabled), (0x8000_0007, 0));
    guest.write(PMCR, E | DP);
    assert_eq!((guest.1.enabled, guest.read(PMCR)), (0x8000_0007, E | DP | 3 << 11));
    guest.write(CNTENCLR, 2);
    assert_eq!((guest.read(CNTENCLR), guest.1.enabled), (0x8000_0005, 0x8000_0005));
    guest.write(PMCR, 0);
    assert_eq!((guest.read(CNTENSET), guest.1.enabled), (0x8000_0005, 0));
}

#[test]
fn the_control_register_resets_counters_apart() {
    let mut guest = Guest::new(2);
    let set = |guest: &mut Guest| {
        guest.write(evcntr(0), 5);
        guest.write(evcntr(1), 6);
        guest.write(CCNTR, 1 << 40);
    };
    set(&mut guest);
    guest.write(PMCR, P);
    assert_eq!((&guest.1.values[..], guest.1.cycles), (&[0, 0][..], 1 << 40));
    set(&mut guest);
    guest.write(PMCR, C);
    assert_eq!((guest.read(CCNTR), guest.1.values), (0, vec![5, 6]));
}

#[test]
fn the_cycle_counter_overflows_where_the_guest_says() {
    let mut guest = Guest::new(2);
    assert_eq!((guest.1.long_cycles, guest.read(PMCR) & LC), (true, LC));
    guest.write(PMCR, E);
    assert_eq!((guest.1.long_cycles, guest.read(PMCR) & LC), (false, 0));
    guest.write(PMCR, E | LC);
    assert_eq!((guest.1.long_cycles, guest.read(PMCR) & LC), (true, LC));
}

#[test]
fn the_selected_counter_is_the_one_of_that_number() {
    let mut guest = Guest::new(2);
    guest.write(SELR, 0xffe1);
    assert_eq!(guest.read(SELR), 1);
    guest.write(XEVTYPER, u64::MAX);
    guest.write(XEVCNTR, 0x1_0000_0009);
    assert_eq!((guest.read(evtyper(1)), guest.read(evcntr(1))), (0xc000_03ff, 9));
    assert_eq!((guest.1.types[1], guest.read(evtyper(0))), (0xc000_03ff, 0));
    guest.write(SELR, 31);
    guest.write(XEVTYPER, u64::MAX);
    assert_eq!((guest.read(CCFILTR), guest.1.filter), (0xc000_0000, 0xc000_0000));
    // The counter does not exist: nothing happens.
    for n in [2, 30] {
        guest.write(SELR, n);
        guest.write(XEVTYPER, 1);
        guest.write(XEVCNTR, 1);
        assert_eq!((guest.read(XEVTYPER), guest.read(XEVCNTR)), (0, 0));
        assert_eq!((guest.read(evtyper(n as u8)), guest.read(evcntr(n as u8))), (0, 0));
    }
}

#[test]
fn an_overflow_raises_the_line_until_it_is_cleared() {
    let mut guest = Guest::new(2);
    guest.write(PMCR, E);
    guest.write(INTENSET, 0x8000_0001);
    assert_eq!((guest.read(INTENCLR), guest.1.interrupts), (0x8000_0001, 0x8000_0001));
    guest.1.overflowed = 1 | CYCLES | 1 << 5;
    assert!(guest.0.line(&mut guest.1));
    // The counter no longer interrupts the hypervisor, and flags of other owners are not shown.
    assert_eq!((guest.1.interrupts, guest.read(OVSSET)), (0, 0x8000_0001));
    assert!(guest.write(OVSCLR, 1), "the cycle counter's is left");
    assert_eq!(guest.1.interrupts, 1);
    assert!(!guest.write(OVSCLR, u64::MAX));
    assert_eq!((guest.1.interrupts, guest.1.overflowed), (0x8000_0001, 1 << 5));
    assert!(guest.write(OVSSET, 1));
    assert!(!guest.write(PMCR, 0), "no counter interrupts while all are disabled");
    assert!(guest.write(PMCR, E));
    assert!(!guest.write(INTENCLR, 1));
    assert_eq!(guest.read(OVSCLR), 1);
}

#[test]
fn software_increments_count_only_where_selected() {
    let mut guest = Guest::new(4);
    guest.write(evtyper(1), 8);
    guest.write(evtyper(2), NOT_AT_EL1.into());
    guest.write(evcntr(3), 0xffff_ffff);
    guest.write(CNTENSET, 0b1111);
    guest.write(SWINC, u64::MAX);
    assert_eq!(guest.1.values, [0, 0, 0, 0xffff_ffff], "all are disabled");
    guest.write(PMCR, E);
    guest.write(CNTENCLR, 1);
    guest.write(SWINC, u64::MAX);
    assert_eq!((&guest.1.values[..], guest.1.overflowed), (&[0, 0, 0, 0][..], 8));
    guest.write(CNTENSET, 1);
    let swinc = SysRegAccess::new(SWINC, 0, true);
    assert_eq!(guest.0.access(swinc, 7, true, &mut guest.1), Some(PmuOutcome::Written));
    assert_eq!((&guest.1.values[..], guest.1.overflowed), (&[1, 0, 1, 0][..], 8));
}

#[test]
fn what_the_processor_counts_is_told_in_armv8_0_terms() {
    let mut guest = Guest::new(1);
    assert_eq!(guest.read(CEID1), 0x101);
    guest.write(USERENR, u64::MAX);
    assert_eq!((guest.1.user, guest.read(USERENR)), (0xf, 0xf));
}

#[test]
fn the_id_register_shows_a_pmu() {
    let id = |place| VirtualPmu::shown(SysRegAccess::new(place, 0, false), 6);
    assert_eq!((id([3, 0, 0, 5, 0]), id([3, 0, 0, 5, 1]), id([3, 0, 0, 4, 0])), (0x106, 6, 6));
}

proptest! {
    /// For all accesses of a guest, only granted counters are accessed (the fake has no others),
    /// and no other bit is enabled.
    #[test]
    fn nothing_but_what_was_granted_is_reached(
        count in 0u8..=40,
        accesses in proptest::collection::vec(
            (
                prop::sample::select(vec![0u8, 3]),
                8u8..16,
                0u8..16,
                0u8..8,
                any::<bool>(),
                any::<u64>(),
            ),
            0..200,
        ),
    ) {
        let mut guest = Guest::new(count.min(MOST as u8));
        let all = guest.0.all();
        for (op1, crn, crm, op2, write, value) in accesses {
            let access =
                SysRegAccess::new([3, op1, if crn < 12 { 9 } else { 14 }, crm, op2], 0, write);
            let outcome = guest.0.access(access, value, value & 1 != 0, &mut guest.1);
            if let Some(PmuOutcome::Read(_)) = outcome {
                prop_assert!(!write);
            }
            guest.0.line(&mut guest.1);
            prop_assert_eq!((guest.1.enabled | guest.1.interrupts | guest.1.overflowed) & !all, 0);
            prop_assert!(guest.1.types.iter().all(|kind| kind & !TYPE == 0));
        }
    }
}

#[test]
fn identification_registers_tell_common_events() {
    // Only the low half of the second word is about events below 0x40.
    let there = [1 << 0x13 | 1 << 40, 1 << (0x37 - 0x20) | 1 << 33];
    let counted: Vec<u16> = (0..64).filter(|&event| may_count(there, event)).collect();
    assert_eq!(counted, [0x13, 0x37]);
    assert!(may_count([0, 0], 0x40) && may_count([0, 0], 0xc0), "no register tells of these");
}
