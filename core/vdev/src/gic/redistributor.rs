//! The physical redistributors of a GICv3: which frames belong to a core, and how LPIs that the
//! firmware left on are turned off.
//!
//! Sources: IHI0069H 12.10 (the frames), 12.11.3 (`GICR_CTLR`), 12.11.40 (`GICR_TYPER`).

/// Bytes of the frames of one redistributor without virtual LPIs: `RD_base` and `SGI_base`.
pub const LEN: u64 = 0x2_0000;
/// Bytes of the frames of one redistributor with virtual LPIs (GICv4): `VLPI_base` and a reserved
/// frame follow the first two.
pub const LONGEST: u64 = 0x4_0000;

const CTLR: u64 = 0x0;
const TYPER: u64 = 0x8;
/// `GICR_TYPER.VLPIS` and `Last`.
const VLPIS: u64 = 1 << 1;
const LAST: u64 = 1 << 4;
/// `GICR_CTLR.EnableLPIs`, `RWP` and `UWP`.
const ENABLE_LPIS: u32 = 1;
const RWP: u32 = 1 << 3;
const UWP: u32 = 1 << 31;
/// Number of reads of `RWP` and `UWP` after which a redistributor that does not answer is given up.
const PATIENCE: u32 = 1_000_000;

/// The registers from the first redistributor on.
pub trait RedistributorFrames {
    /// Reads the word at `offset`.
    fn read(&mut self, offset: u64) -> u32;
    /// Reads the 64 bits at `offset`.
    fn read_long(&mut self, offset: u64) -> u64;
    /// Writes the word at `offset`.
    fn write(&mut self, offset: u64, value: u32);
}

/// Returns the offset of `RD_base` of the core with this MPIDR, among `len` bytes of frames. Frames
/// can be in any order; each contains its core's affinity, its length, and whether it is the last.
pub fn find(frames: &mut impl RedistributorFrames, len: u64, mpidr: u64) -> Option<u64> {
    let affinity = (mpidr >> 8 & 0xff00_0000 | mpidr & 0x00ff_ffff) as u32;
    let mut at = 0;
    while at + LEN <= len {
        // Read in one access, because gem5 v24.0 does not answer a read of the upper half alone.
        let typer = frames.read_long(at + TYPER);
        if (typer >> 32) as u32 == affinity {
            return Some(at);
        }
        if typer & LAST != 0 {
            return None;
        }
        at += if typer & VLPIS == 0 { LEN } else { LONGEST };
    }
    None
}

/// Error: the redistributor does not turn its LPIs off (`GICR_CTLR.EnableLPIs` may be fixed once it
/// is set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LpisStayOn;

/// Turns LPIs off at the redistributor whose `RD_base` is at `at`. The hypervisor takes none, and
/// the GIC would otherwise continue to write to the firmware's pending table, whose memory may
/// belong to a VM now.
///
/// # Errors
///
/// Returns [`LpisStayOn`] if the redistributor does not turn them off.
pub fn stop_lpis(frames: &mut impl RedistributorFrames, at: u64) -> Result<(), LpisStayOn> {
    let control = frames.read(at + CTLR);
    if control & ENABLE_LPIS == 0 {
        return Ok(());
    }
    frames.write(at + CTLR, control & !(ENABLE_LPIS | RWP | UWP));
    for _ in 0..PATIENCE {
        let control = frames.read(at + CTLR);
        if control & (RWP | UWP) == 0 {
            return if control & ENABLE_LPIS == 0 { Ok(()) } else { Err(LpisStayOn) };
        }
    }
    Err(LpisStayOn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A redistributor: the bytes of its frames, its affinity, and `GICR_CTLR`.
    struct Redistributor {
        len: u64,
        affinity: u32,
        control: u32,
        /// Whether `EnableLPIs` cannot be cleared.
        sticky: bool,
        /// Number of reads of `GICR_CTLR` until `RWP` is clear.
        busy: u32,
    }

    /// A board that records writes.
    struct Board {
        redistributors: Vec<Redistributor>,
        written: Vec<(u64, u32)>,
    }

    impl Board {
        fn new(affinities: &[u32], len: u64) -> Self {
            let one = |&affinity: &u32| Redistributor {
                len,
                affinity,
                control: 0,
                sticky: false,
                busy: 0,
            };
            Self { redistributors: affinities.iter().map(one).collect(), written: Vec::new() }
        }

        /// Returns the number of the redistributor at `offset`, and the offset within it.
        fn at(&mut self, offset: u64) -> (usize, u64) {
            let mut rest = offset;
            for (n, its) in self.redistributors.iter().enumerate() {
                if rest < its.len {
                    return (n, rest);
                }
                rest -= its.len;
            }
            panic!("there is nothing at {offset:#x}");
        }
    }

    impl RedistributorFrames for Board {
        fn read(&mut self, offset: u64) -> u32 {
            let (n, register) = self.at(offset);
            let its = &mut self.redistributors[n];
            match register {
                CTLR if its.busy > 0 => {
                    its.busy -= 1;
                    its.control | RWP
                }
                CTLR => its.control,
                _ => panic!("register {register:#x}"),
            }
        }

        fn read_long(&mut self, offset: u64) -> u64 {
            let (n, register) = self.at(offset);
            assert_eq!(register, TYPER);
            let its = &self.redistributors[n];
            let [last, long] = [n + 1 == self.redistributors.len(), its.len == LONGEST];
            u64::from(its.affinity) << 32
                | (n as u64) << 8
                | u64::from(last) << 4
                | u64::from(long) << 1
        }

        fn write(&mut self, offset: u64, value: u32) {
            self.written.push((offset, value));
            let (n, register) = self.at(offset);
            assert_eq!(register, CTLR);
            let its = &mut self.redistributors[n];
            its.control = if its.sticky { value | its.control & ENABLE_LPIS } else { value };
        }
    }

    #[test]
    fn frames_are_found_in_any_order_and_at_either_stride() {
        for len in [LEN, LONGEST] {
            // The boot core is the third one, and one core is in another cluster.
            let mut board = Board::new(&[0x101, 0x100, 0, 0x0100_0002], len);
            let all = 4 * len;
            assert_eq!(find(&mut board, all, 0x8000_0000), Some(2 * len));
            assert_eq!(find(&mut board, all, 0x100), Some(len));
            assert_eq!(find(&mut board, all, 0x101), Some(0));
            assert_eq!(find(&mut board, all, 0x1_0000_0002), Some(3 * len), "affinity 3");
            // The search never goes beyond the last redistributor, nor beyond the mapped bytes.
            assert_eq!(find(&mut board, 100 * len, 2), None);
            assert_eq!(find(&mut board, 2 * len, 0), None);
            assert!(board.written.is_empty());
        }
    }

    #[test]
    fn strides_may_differ() {
        let mut board = Board::new(&[3, 2, 1, 0], LEN);
        board.redistributors[1].len = LONGEST;
        assert_eq!(find(&mut board, 5 * LEN, 0), Some(4 * LEN));
    }

    #[test]
    fn lpis_that_the_firmware_left_on_are_turned_off() {
        let mut board = Board::new(&[0, 1], LEN);
        assert_eq!(stop_lpis(&mut board, LEN), Ok(()));
        assert!(board.written.is_empty(), "they were off");
        board.redistributors[1].control = 1 << 24 | ENABLE_LPIS;
        board.redistributors[1].busy = 7;
        assert_eq!(stop_lpis(&mut board, LEN), Ok(()));
        assert_eq!(board.written, [(LEN, 1 << 24)], "and nothing else is changed");
        assert_eq!(board.redistributors[1].control, 1 << 24);
    }

    #[test]
    fn lpis_that_stay_on_are_an_error_and_waiting_ends() {
        let mut board = Board::new(&[0], LEN);
        board.redistributors[0].control = ENABLE_LPIS;
        board.redistributors[0].sticky = true;
        assert_eq!(stop_lpis(&mut board, 0), Err(LpisStayOn));
        board.redistributors[0].sticky = false;
        board.redistributors[0].control = ENABLE_LPIS;
        board.redistributors[0].busy = u32::MAX;
        assert_eq!(stop_lpis(&mut board, 0), Err(LpisStayOn));
    }
}
