//! What VMs did, as traces for `weir simulate`.

use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write},
    path::Path,
};
use weir_image::{Result, failure::Context};
use weir_memory::recording::{RecordedAccess, RecordingLine};
use weir_model::{Placement, System};
use weir_qemu_plugin::caches::{PAGE, Recorded};
use weir_simulator::ram_pages;

/// The recorded accesses of a VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccessTrace {
    /// The VM.
    vm: String,
    /// The file with the accesses.
    file: String,
    /// Accesses in it, by lines touched.
    accesses: u64,
    /// Accesses that were made afterwards.
    left_out: u64,
    /// Accesses to memory that is not the VM's RAM.
    elsewhere: u64,
}

/// The name of a VM's trace.
pub fn name(vm: &str) -> String {
    format!("{vm}.trace")
}

/// Where each VM's pages lie: by physical address their offset in its RAM.
pub fn offsets(system: &System, placement: &Placement) -> Vec<BTreeMap<u64, u64>> {
    let pages = |vm| {
        ram_pages(system, placement, vm).into_iter().zip((0..).step_by(PAGE as usize)).collect()
    };
    (0..system.vms.len()).map(pages).collect()
}

/// Writes the recordings of VMs in `from` as traces to `NAME.trace` in `to`, if those did anything.
pub fn write(
    system: &System,
    offsets: &[BTreeMap<u64, u64>],
    recorded: &[Recorded],
    from: &Path,
    to: &Path,
) -> Result<Vec<AccessTrace>> {
    let mut traces = Vec::new();
    for (number, (vm, seen)) in system.vms.iter().zip(recorded).enumerate() {
        if seen.kept == 0 {
            continue;
        }
        let path = from.join(number.to_string());
        let recording =
            weir_model::open_regular(&path).context(|| format!("read {}", path.display()))?;
        let file = to.join(name(&vm.name));
        let out = File::create(&file).context(|| format!("write {}", file.display()))?;
        let vcpu = |core: usize| vm.cpus.iter().position(|cpu| usize::from(cpu.0) == core);
        let lines = BufReader::new(recording).lines().map_while(std::result::Result::ok);
        let mut out = BufWriter::new(out);
        let elsewhere = translate(lines, vcpu, &offsets[number], &mut out)
            .and_then(|elsewhere| out.flush().map(|()| elsewhere))
            .context(|| format!("write {}", file.display()))?;
        traces.push(AccessTrace {
            vm: vm.name.clone(),
            file: file.display().to_string(),
            accesses: seen.kept - elsewhere,
            left_out: seen.left_out,
            elsewhere,
        });
    }
    Ok(traces)
}

/// Cores become vCPUs, and physical addresses offsets in RAM. Gives how many accesses went
/// elsewhere: their cycles are those of the next one.
fn translate(
    lines: impl Iterator<Item = String>,
    vcpu: impl Fn(usize) -> Option<usize>,
    offsets: &BTreeMap<u64, u64>,
    out: &mut impl Write,
) -> std::io::Result<u64> {
    let (mut elsewhere, mut waited) = (0, 0_u32);
    for line in lines {
        match RecordingLine::parse(&line).map_err(std::io::Error::other)? {
            Some(RecordingLine::Vcpu(core)) => {
                let vcpu = vcpu(core).ok_or_else(|| {
                    std::io::Error::other(format!("core {core} has no vCPU of this VM"))
                })?;
                writeln!(out, "{}", RecordingLine::Vcpu(vcpu))?;
            }
            Some(RecordingLine::Access(step)) => {
                let cycles = step.cycles.saturating_add(waited);
                if let Some(page) = offsets.get(&(step.at / PAGE * PAGE)) {
                    waited = 0;
                    let at = page + step.at % PAGE;
                    writeln!(
                        out,
                        "{}",
                        RecordingLine::Access(RecordedAccess { at, cycles, ..step })
                    )?;
                } else {
                    waited = cycles;
                    elsewhere += 1;
                }
            }
            None => {}
        }
    }
    Ok(elsewhere)
}

/// For a person: what was recorded, and what was not.
#[must_use]
pub fn render(traces: &[AccessTrace]) -> String {
    let line = |trace: &AccessTrace| {
        let AccessTrace { vm, file, accesses, left_out, elsewhere } = trace;
        let mut text = format!("recorded: {accesses} accesses of {vm} in {file}");
        if *left_out > 0 {
            let all = accesses + elsewhere + left_out;
            let _ = write!(
                text,
                "; {left_out} more, the later ones, are not in it: --record-most {all} takes all"
            );
        }
        if *elsewhere > 0 {
            let _ = write!(text, "; {elsewhere} to other memory than its RAM are not in it");
        }
        text + "\n"
    };
    traces.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_addresses_become_offsets_and_cores_vcpus() {
        let offsets = BTreeMap::from([(0x4000_3000, 0), (0x4000_1000, PAGE)]);
        let recording =
            "vcpu 3\nR 0x40001008 2\nW 0x40003010 3\nR 0x40002000 5\nvcpu 2\nR 0x40003000 7\n";
        let mut out = Vec::new();
        let vcpu = |core: usize| core.checked_sub(2);
        let lines = || recording.lines().map(str::to_owned);
        let elsewhere = translate(lines(), vcpu, &offsets, &mut out).unwrap();
        let text = "vcpu 1\nR 0x1008 2\nW 0x10 3\nvcpu 0\nR 0x0 12\n";
        assert_eq!((elsewhere, String::from_utf8(out).unwrap().as_str()), (1, text));
        assert!(translate(lines(), |_| None, &offsets, &mut Vec::new()).is_err());
    }

    #[test]
    fn what_is_not_recorded_is_reported() {
        let trace = |left_out, elsewhere| AccessTrace {
            vm: "a".to_owned(),
            file: "t/a.trace".into(),
            accesses: 10,
            left_out,
            elsewhere,
        };
        assert_eq!(render(&[trace(0, 0)]), "recorded: 10 accesses of a in t/a.trace\n");
        let all = render(&[trace(5, 2)]);
        assert!(all.contains("5 more") && all.contains("--record-most 17"), "{all}");
        assert!(all.contains("2 to other memory"), "{all}");
    }
}
