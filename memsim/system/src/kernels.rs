//! Small programs with recorded loads and stores: what the automotive part of an embedded
//! benchmark suite does to memory (basic mathematics, counting of bits, sorting, and on images
//! smoothing, edges and corners by the SUSAN principle), each with a small and a large input. The
//! programs are weir's own; only their data structures have the sizes that such a suite has.
//!
//! They do compute: the order of the accesses depends on the data. A recording has at most [`MOST`]
//! accesses of the program: of sorting the first ones, of an image so many pixels, evenly spread,
//! that the rest of it is still touched. They follow the first touches of a process: the lines of
//! its code and libraries, and the copy of its input from the file to its data.

use std::ops::Range;
use weir_memory::Access;

/// Accesses of a recording.
pub(crate) const MOST: usize = 500_000;

/// Bytes of code, libraries and their data that a process touches until its `main` runs: assumed,
/// of a small program with the C library.
const LOADED: usize = 256 << 10;

/// A recording: accesses by their offset, which begin again at the end.
pub(crate) struct Recording {
    pub steps: Vec<(Access, u32)>,
    /// Steps before the first one of the program.
    #[cfg(test)]
    start: usize,
    /// Cycles between two accesses, for the instructions that are none: an estimate.
    pub cycles: u64,
}

struct Memory {
    steps: Vec<(Access, u32)>,
    random: u64,
}

impl Memory {
    fn full(&self) -> bool {
        self.steps.len() >= MOST
    }

    fn access(&mut self, access: Access, at: usize) {
        if !self.full() {
            self.steps.push((access, at as u32));
        }
    }

    fn read(&mut self, at: usize) {
        self.access(Access::Read, at);
    }

    fn write(&mut self, at: usize) {
        self.access(Access::Write, at);
    }

    /// The next number of a linear congruential generator (Knuth's MMIX), of which the upper bits
    /// are the random ones.
    fn random(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as u32
    }
}

/// The bytes from the start of a VM's RAM to the end of the last line that a recording touches; 0
/// of no program.
pub(crate) fn bytes(name: &str) -> u64 {
    let steps = record(name).map(|recording| recording.steps).unwrap_or_default();
    steps.iter().map(|(_, at)| (u64::from(*at) / 64 + 1) * 64).max().unwrap_or(0)
}

/// Records the program of this name, one of [`weir_model::timing::KERNELS`]; `None` for another.
pub(crate) fn record(name: &str) -> Option<Recording> {
    let mut memory = Memory { steps: Vec::new(), random: 1 };
    let (kernel, large) = match name.rsplit_once('-')? {
        (kernel, "small") => (kernel, false),
        (kernel, "large") => (kernel, true),
        _ => return None,
    };
    let (cycles, input) = match kernel {
        "basicmath" => {
            basicmath(&mut memory, if large { 20_000 } else { 2_000 });
            (30, 0..0)
        }
        "bitcount" => {
            bitcount(&mut memory, if large { 100_000 } else { 10_000 });
            (6, 0..0)
        }
        "qsort" => {
            // Words of up to 128 characters, and points of three coordinates and a distance.
            let (records, bytes) = if large { (50_000, 24) } else { (10_000, 128) };
            qsort(&mut memory, records, bytes);
            (4, 0..records * bytes)
        }
        "susan-smoothing" | "susan-edges" | "susan-corners" => {
            let (width, height) = if large { (384, 288) } else { (76, 95) };
            susan(&mut memory, kernel, width, height);
            (3, IMAGE..IMAGE + width * height)
        }
        _ => return None,
    };
    let mut steps = first_touches(&memory.steps, input);
    #[cfg(test)]
    let start = steps.len();
    steps.append(&mut memory.steps);
    Some(Recording {
        steps,
        #[cfg(test)]
        start,
        cycles,
    })
}

/// The accesses of a process before its program: it reads its code, then its input line by line
/// from the file behind the data, and writes it to where the program has it.
fn first_touches(program: &[(Access, u32)], input: Range<usize>) -> Vec<(Access, u32)> {
    const LINE: usize = 64;
    let end = program.iter().map(|(_, at)| *at as usize + 1).max().unwrap_or(0).max(input.end);
    let file = end.next_multiple_of(4096);
    let code = (file + input.len()).next_multiple_of(4096);
    let read = |at: usize| (Access::Read, at as u32);
    let loaded = (code..code + LOADED).step_by(LINE).map(read);
    let copied = input.clone().step_by(LINE).zip((file..).step_by(LINE));
    loaded.chain(copied.flat_map(|(to, from)| [read(from), (Access::Write, to as u32)])).collect()
}

/// Roots of cubic equations by Newton's method, and their results in a ring of 4 KiB.
fn basicmath(memory: &mut Memory, equations: usize) {
    const STACK: usize = 0x2000;
    for number in 0..equations {
        let random = memory.random();
        let [a, b, c] = [0, 10, 20].map(|shift| f64::from(random >> shift & 0x3ff) / 64.0 - 8.0);
        let mut x = 1.0_f64;
        for _ in 0..16 {
            for coefficient in 0..3 {
                memory.read(STACK + coefficient * 8);
            }
            let slope = (3.0 * x + 2.0 * a) * x + b;
            let step = (((x + a) * x + b) * x + c) / if slope.abs() < 1e-9 { 1.0 } else { slope };
            x -= step;
            memory.write(STACK + 32);
            if step.abs() < 1e-9 {
                break;
            }
        }
        memory.write(number * 8 % 4096);
    }
}

/// The bits of random words, by a table of 256 bytes.
fn bitcount(memory: &mut Memory, words: usize) {
    const TABLE: usize = 0x1000;
    for number in 0..words {
        memory.read(number * 4 % 2048);
        for byte in memory.random().to_le_bytes() {
            memory.read(TABLE + usize::from(byte));
        }
    }
}

/// Sorts records of so many bytes in place, by their first word.
fn qsort(memory: &mut Memory, records: usize, bytes: usize) {
    let mut keys: Vec<u32> = (0..records).map(|_| memory.random()).collect();
    let mut open = vec![(0, records)];
    while let Some((start, end)) = open.pop() {
        if end - start < 2 || memory.full() {
            continue;
        }
        let pivot = keys[usize::midpoint(start, end)];
        memory.read(usize::midpoint(start, end) * bytes);
        let (mut left, mut right) = (start, end - 1);
        loop {
            while keys[left] < pivot {
                memory.read(left * bytes);
                left += 1;
            }
            memory.read(left * bytes);
            while keys[right] > pivot {
                memory.read(right * bytes);
                right -= 1;
            }
            memory.read(right * bytes);
            if left >= right {
                break;
            }
            keys.swap(left, right);
            for word in (0..bytes).step_by(8) {
                memory.read(left * bytes + word);
                memory.read(right * bytes + word);
                memory.write(left * bytes + word);
                memory.write(right * bytes + word);
            }
            left += 1;
            right -= 1;
        }
        open.push((start, left));
        open.push((left.max(start + 1), end));
    }
}

/// The first address of an image.
const IMAGE: usize = 0x1000;

/// Moves a mask over an image of bytes and reads the value of each difference of brightness from a
/// table; over every n-th pixel of every n-th line, so that the whole image fits into the
/// recording.
fn susan(memory: &mut Memory, kernel: &str, width: usize, height: usize) {
    const TABLE: usize = 0;
    let pixels = width * height;
    let image: Vec<u8> = (0..pixels).map(|at| (at / 7 + at / width * 3) as u8).collect();
    let out = IMAGE + pixels.div_ceil(4096) * 4096;
    // Smoothing weighs a square, the other two count a circle of 37 pixels; what they write has a
    // byte or a word.
    let smoothing = kernel == "susan-smoothing";
    let radius = if smoothing { 7 } else { 3 };
    let written = if smoothing { 1 } else { 4 };
    let reach = |y: usize| if smoothing { 7 } else { [1, 2, 3, 3, 3, 2, 1][y] };
    // Corners give up early where too much of the mask is like its center.
    let enough = if kernel == "susan-corners" { 18 } else { usize::MAX };
    let taps = if smoothing { 15 * 15 } else { 37 };
    let each = (1..64).find(|n| pixels * (2 * taps + 2) / (n * n) <= MOST).unwrap_or(1);
    for y in (radius..height - radius).step_by(each) {
        for x in (radius..width - radius).step_by(each) {
            let center = image[y * width + x];
            memory.read(IMAGE + y * width + x);
            let mut alike = 0;
            'mask: for dy in 0..=2 * radius {
                let reach = reach(dy);
                for dx in radius - reach..=radius + reach {
                    let at = (y + dy - radius) * width + x + dx - radius;
                    memory.read(IMAGE + at);
                    let difference = usize::from(image[at].abs_diff(center));
                    memory.read(TABLE + difference);
                    alike += usize::from(difference < 20);
                    if alike > enough {
                        break 'mask;
                    }
                }
            }
            memory.write(out + (y * width + x) * written);
            if memory.full() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_model::timing::KERNELS;

    fn lines(recording: &Recording) -> usize {
        recording.steps[recording.start..]
            .iter()
            .map(|(_, at)| at / 64)
            .collect::<BTreeSet<_>>()
            .len()
    }

    #[test]
    fn each_name_has_a_repeatable_recording() {
        for name in KERNELS {
            let one = record(name).unwrap();
            let own = one.steps.len() - one.start;
            assert!((2000..=MOST).contains(&own), "{name}: {own}");
            assert!(one.cycles > 0);
            assert_eq!(one.steps, record(name).unwrap().steps, "{name}");
        }
        assert!(record("qsort").is_none() && record("bubble-small").is_none());
    }

    #[test]
    fn their_working_sets_are_those_of_their_data() {
        let of = |name: &str| lines(&record(name).unwrap());
        // Four KiB of results and a line of stack; 2 KiB of words and a table.
        assert_eq!((of("basicmath-small"), of("bitcount-small")), (65, 36));
        // 10 000 records of two lines; the large ones fill 1 200 000 bytes.
        // Both have 1.2 MB and more; the recording ends before each record was read or moved.
        assert!((12_000..=20_000).contains(&of("qsort-small")), "{}", of("qsort-small"));
        assert!((12_000..=18_750).contains(&of("qsort-large")), "{}", of("qsort-large"));
        // The image, and what is written of it.
        for kernel in ["susan-smoothing", "susan-edges", "susan-corners"] {
            let of = |size| of(&format!("{kernel}-{size}"));
            assert!(of("small") >= 76 * 89 / 64, "{kernel}: {}", of("small"));
            assert!(of("large") >= 384 * 280 / 64, "{kernel}: {}", of("large"));
        }
    }

    #[test]
    fn a_process_touches_its_code_and_input_first() {
        for (name, input) in
            [("bitcount-small", 0), ("qsort-large", 1_200_000), ("susan-edges-small", 76 * 95)]
        {
            let Recording { steps, start, .. } = record(name).unwrap();
            let (first, program) = steps.split_at(start);
            let writes = first.iter().filter(|(access, _)| *access == Access::Write);
            let copied = usize::div_ceil(input, 64);
            assert_eq!((writes.count(), start), (copied, 2 * copied + LOADED / 64), "{name}");
            // Neither the file nor the code is part of the data.
            let data = program.iter().map(|(_, at)| *at).max().unwrap();
            let reads = first.iter().filter(|(access, _)| *access == Access::Read);
            assert!(reads.map(|(_, at)| *at).min().unwrap() > data, "{name}");
            let touched: BTreeSet<_> = first.iter().map(|(_, at)| at / 64).collect();
            assert_eq!(touched.len(), start, "{name}");
        }
    }

    #[test]
    fn sorting_sorts() {
        // What is recorded follows from the keys: were they not sorted, the partitions would not
        // end.
        let mut memory = Memory { steps: Vec::new(), random: 1 };
        qsort(&mut memory, 1000, 8);
        let compares = memory.steps.iter().filter(|(access, _)| *access == Access::Read).count();
        // 1.39 n log2 n compares, and the swaps' reads.
        assert!((10_000..30_000).contains(&compares), "{compares}");
    }
}
