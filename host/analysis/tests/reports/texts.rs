//! Parts of system files.

#![allow(dead_code, reason = "each test program uses its part of this")]

/// Table II of rt-virtio.
pub const OVERHEADS: &str = "
[overheads]
hc = { min = 939, max = 949 }
pt = { min = 111, max = 757 }
pp = { min = 181, max = 1161 }
ql = { min = 71, max = 142 }
qi = { min = 50, max = 101 }
qa = { min = 24, max = 30 }
qr = { min = 20, max = 40 }
ps = { min = 20, max = 71 }
pd = { min = 373, max = 949 }
ft = { min = 2222, max = 2646 }
ip = { min = 797, max = 828 }
br = { min = 1370, max = 1460 }
";

/// Table I of rt-virtio.
pub const SATURATION: &str = r#"
[saturation]
period = "30us"
line = "64B"
points = [
    { accesses = 150, dma = "1074MB/s" },
    { accesses = 165, dma = "649MB/s" },
    { accesses = 180, dma = "485MB/s" },
    { accesses = 195, dma = "148MB/s" },
    { accesses = 210, dma = "47MB/s" },
]
min_accesses = 50
"#;

pub fn flow(name: &str, from: &str, to: &str, size: &str, period: &str, deadline: &str) -> String {
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = {to}\nsize = \"{size}\"\n\
         period = \"{period}\"\ndeadline = \"{deadline}\"\n"
    )
}

/// One flow with deadline = period on an engine with one sender.
pub fn table3(bandwidth: &str, size: &str, period: u64) -> String {
    let period = format!("{period}ns");
    let flow = flow("only", "a", "\"b\"", size, &period, &period);
    format!("[dma]\nbandwidth = \"{bandwidth}\"\nchunk = \"4KiB\"\n{flow}{OVERHEADS}")
}

/// A broker's flow with all overheads, without waits for locks, and the copy's bandwidth.
pub fn moved_by_the_broker() -> String {
    let flow = flow("f", "a", "\"b\"", "4KiB", "900us", "900us");
    format!(
        "[dma]\npath = \"broker\"\ncopy_bandwidth = \"1GB/s\"\n\
         {flow}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\n\
         hold = {{ min = 0, max = 0 }}\n"
    )
}

/// Two VMs on a core, budgets, a task.
pub fn system(more: &str) -> String {
    format!(
        r#"
[[vm]]
name = "rt"
cpus = [0]
memory_budget = {{ accesses = 60, period = "30us" }}
[[vm.task]]
name = "loop"
wcet = "200us"
period = "2ms"
accesses = 29
[[vm]]
name = "gp"
cpus = [0, 1]
memory_budget = {{ accesses = 90, period = "30us" }}
[[core]]
id = 0
schedule = {{ kind = "table", major_frame = "1ms", slots = [{{ vm = "rt", start = "0us", length = "500us" }}, {{ vm = "gp", start = "500us", length = "400us" }}] }}
{more}
{SATURATION}"#
    )
}

/// Budgets of 110 and 100 for a and b, which a flow goes between, with these tables in addition to
/// Table I.
pub fn regulated(more: &str) -> String {
    let vm = |name: &str, budget: u64| {
        format!(
            "[[vm]]\nname = \"{name}\"\n\
             memory_budget = {{ accesses = {budget}, period = \"30us\" }}\n"
        )
    };
    format!("{}{}{more}{OVERHEADS}{SATURATION}", vm("a", 110), vm("b", 100))
}
