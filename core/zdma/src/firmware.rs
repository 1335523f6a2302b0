//! The QoS regulator at the point where the engine's accesses enter the interconnect. Its registers
//! are accessible only at EL3, so firmware writes them: `boards/zcu102/firmware-call.md` specifies
//! the call.

/// The function identifier: a fast call to the SiP service, with 64-bit arguments (DEN0028).
pub const FUNCTION: u32 = 0xc200_2000;

/// Bits 63:32 of each operation, and of the firmware's version: "weir". They are needed because the
/// builder of the firmware may use the function identifier for another service.
const NAME: u64 = 0x7765_6972;
/// The operation that returns the version: major in bits 31:16, minor in bits 15:0.
const VERSION: u64 = NAME << 32;
/// The operation that sets the levels of a port's reads and writes.
const SET: u64 = NAME << 32 | 1;
/// The major version that has these operations.
const MAJOR: u64 = 1;

/// The firmware's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has set the regulator.
    Set,
    /// It does not have this call.
    Absent,
    /// It has the call in a version that weir does not know: major in bits 31:16, minor below.
    Version(u32),
    /// It has not set the regulator, for this reason: an error of DEN0028 or another value.
    Refused(u64),
}

/// Asks the firmware to limit the reads and the writes of `port` to `level` / 2^12 transactions per
/// cycle of the port's clock. `call` makes a call with [`FUNCTION`] and these arguments from x1 on,
/// and returns x0. It is called a second time only if the first answer is a known version.
pub fn regulate(port: u64, level: u64, mut call: impl FnMut([u64; 4]) -> u64) -> Answer {
    let version = call([VERSION, 0, 0, 0]);
    if version >> 32 != NAME {
        return Answer::Absent;
    }
    if version >> 16 & 0xffff != MAJOR {
        return Answer::Version(version as u32);
    }
    match call([SET, port, level, level]) {
        0 => Answer::Set,
        error => Answer::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a firmware that gives these answers in turn, and the calls that it
    /// got.
    fn asked(answers: &[u64]) -> (Answer, Vec<[u64; 4]>) {
        let (mut calls, mut answers) = (Vec::new(), answers.iter());
        let answer = regulate(1, 40, |arguments| {
            calls.push(arguments);
            *answers.next().expect("no further call")
        });
        (answer, calls)
    }

    const ASK: [u64; 4] = [0x7765_6972_0000_0000, 0, 0, 0];

    #[test]
    fn reads_and_writes_are_set_to_the_level() {
        let calls = vec![ASK, [0x7765_6972_0000_0001, 1, 40, 40]];
        assert_eq!(asked(&[0x7765_6972_0001_0000, 0]), (Answer::Set, calls.clone()));
        // A later minor version has the same operations.
        assert_eq!(asked(&[0x7765_6972_0001_0003, 0]), (Answer::Set, calls));
    }

    #[test]
    fn a_refusal_is_passed_on() {
        let refused = asked(&[0x7765_6972_0001_0000, (-3_i64).cast_unsigned()]).0;
        assert_eq!(refused, Answer::Refused((-3_i64).cast_unsigned()));
        assert_eq!(asked(&[0x7765_6972_0001_0000, 40]).0, Answer::Refused(40));
    }

    /// A firmware without the call, or with another service in its place, gets no further call.
    #[test]
    fn only_a_known_version_is_asked_to_set() {
        for other in [u64::MAX, 0xffff_ffff, 0, 0x1_0000, 0x7765_6971_0001_0000] {
            assert_eq!(asked(&[other]), (Answer::Absent, vec![ASK]), "{other:#x}");
        }
        let [none, next] = [0x7765_6972_0000_0001, 0x7765_6972_0002_0005];
        assert_eq!(asked(&[none]), (Answer::Version(1), vec![ASK]));
        assert_eq!(asked(&[next]), (Answer::Version(0x2_0005), vec![ASK]));
    }
}
