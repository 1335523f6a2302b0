#!/usr/bin/env python3
"""Writes the figures of README.md and docs/explanation as SVG files next to this script.

    python3 docs/figures/make.py            # writes the files
    python3 docs/figures/make.py --check    # exits with 1 if a file is not up to date

Uses the standard library only. Each figure has an opaque background and follows the reader's color
scheme, so that it is readable on light and on dark pages.
"""

import pathlib
import sys
from html import escape

HERE = pathlib.Path(__file__).resolve().parent
FONT = 13
SMALL = 11
# Average width of a character over the font size; labels are checked against it.
WIDTH = 0.52
BOLD = 0.59
# Labels that do not fit.
FAULTS = []

# Colors of the page, text, minor text, lines and six kinds of boxes.
LIGHT = {"page": "#ffffff", "ink": "#1f2328", "soft": "#57606a", "edge": "#8c959f",
         "a": "#dbeafe", "b": "#dcfce7", "c": "#fef3c7", "d": "#f3e8ff", "e": "#eceff2",
         "f": "#fee2e2"}
DARK = {"page": "#161b22", "ink": "#e6edf3", "soft": "#9da7b3", "edge": "#768390",
        "a": "#1e3a5f", "b": "#1c4532", "c": "#4d3b10", "d": "#3f2a5c", "e": "#2a313a",
        "f": "#5b2326"}


def rules(colors):
    """Returns the style rules of one color scheme."""
    boxes = [f".{name} {{ fill: {colors[name]}; }}" for name in ("page", *"abcdef")]
    return "\n".join([
        *boxes,
        f"text {{ fill: {colors['ink']}; }}",
        f"text.small {{ fill: {colors['soft']}; }}",
        f"rect.box {{ stroke: {colors['edge']}; }}",
        f"path {{ stroke: {colors['ink']}; }}",
        f"path.thin, path.dash {{ stroke: {colors['edge']}; }}",
        f"path.head {{ fill: {colors['ink']}; stroke: none; }}",
    ])


STYLE = f"""
text {{ font-family: system-ui, "DejaVu Sans", Arial, sans-serif; }}
text.title {{ font-weight: 600; }}
path {{ fill: none; stroke-width: 1.4; }}
path.thin, path.dash {{ stroke-width: 1; }}
path.dash {{ stroke-dasharray: 4 3; }}
{rules(LIGHT)}
@media (prefers-color-scheme: dark) {{
{rules(DARK)}
}}
"""


class Figure:
    """A canvas of boxes, texts and arrows."""

    def __init__(self, name, width, height, title):
        self.name, self.width, self.height, self.title = name, width, height, title
        self.parts = []

    def text(self, x, y, text, size=FONT, anchor="start", kind="", limit=None):
        """Puts one line of text; notes it as a fault if it is wider than `limit`."""
        wide = len(text) * size * (BOLD if kind == "title" else WIDTH)
        if limit is not None and wide > limit:
            FAULTS.append(f"{self.name}: '{text}' is {wide:.0f} wide, {limit:.0f} fit")
        attribute = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{attribute}>'
            f"{escape(text)}</text>"
        )

    def box(self, x, y, width, height, color, title="", lines=(), center=False):
        """Draws a box with a title and smaller lines."""
        self.parts.append(
            f'<rect class="box {color}" x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{height:g}" rx="4"/>'
        )
        if center:
            rows = [(title, FONT, "")] if title else []
            rows += [(line, SMALL, "small") for line in lines]
            at = y + height / 2 - (len(rows) - 1) * (SMALL + 4) / 2 + SMALL / 3
            for i, (row, size, kind) in enumerate(rows):
                place = at + i * (SMALL + 4)
                self.text(x + width / 2, place, row, size, "middle", kind, width - 4)
            return
        at = y + FONT + 5
        if title:
            self.text(x + 9, at, title, kind="title", limit=width - 14)
            at += SMALL + 6
        for line in lines:
            self.text(x + 9, at, line, SMALL, kind="small", limit=width - 12)
            at += SMALL + 4

    def line(self, *points, arrow=True, kind=""):
        """Draws a polyline, with an arrow head at its end."""
        way = " L".join(f"{x:g} {y:g}" for x, y in points)
        head = ' marker-end="url(#head)"' if arrow else ""
        attribute = f' class="{kind}"' if kind else ""
        self.parts.append(f'<path d="M{way}"{attribute}{head}/>')

    def svg(self):
        """Returns the file's text."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(self.title)}">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n<defs>{head}</defs>\n"
            f'<rect class="page" width="{self.width}" height="{self.height}" rx="8"/>\n'
            f"{body}\n</svg>\n"
        )


def overview():
    """The way from a system file to a run and a verdict."""
    f = Figure("overview", 860, 262, "From one system file to a run, its bounds and a verdict")
    f.box(20, 92, 130, 64, "e", "system.toml", ["VMs, cores, memory,", "budgets, messages"])
    f.line((150, 124), (196, 124), (196, 52), (218, 52))
    f.line((196, 124), (218, 124))
    f.line((196, 124), (196, 206), (218, 206))
    f.box(220, 20, 190, 64, "a", "check, build",
          ["memory map, colors, image:", "one file with all VMs"])
    f.box(220, 92, 190, 64, "b", "analyze, plan",
          ["upper bounds on latencies,", "cheapest budgets that hold"])
    f.box(220, 174, 190, 64, "d", "simulate",
          ["the same decisions on a model", "of caches, DRAM and DMA"])
    f.line((410, 52), (434, 52))
    f.box(436, 20, 180, 64, "c", "EL2: board or QEMU",
          ["VMs, budgets, schedules,", "interrupts, trace"])
    f.line((616, 52), (648, 52))
    f.box(650, 20, 190, 64, "e", "report, trace, observe", ["observed latencies"])
    f.line((745, 84), (745, 100))
    f.line((410, 124), (648, 124))
    f.text(530, 117, "bounds", SMALL, "middle", "small")
    f.box(650, 102, 190, 46, "f", "verdict", ["a missed bound fails the run"])
    f.line((410, 206), (745, 206), (745, 150))
    f.text(530, 199, "predicted latencies", SMALL, "middle", "small")
    return f


def layers():
    """Host and board, and the crates of each layer."""
    f = Figure("layers", 860, 650, "Layers and crates of weir")
    f.text(20, 26, "Host", kind="title")
    f.text(450, 26, "Board, or QEMU", kind="title")
    f.line((435, 12), (435, 470), arrow=False, kind="dash")

    f.box(20, 40, 395, 44, "e", "system.toml", ["one file describes the system"])
    f.line((217, 84), (217, 102))
    f.box(20, 104, 395, 64, "a", "host/cli",
          ["the weir command: check, plan, analyze, build, run, ...",
           "reads boards/NAME: board.toml, device tree, memory.toml"])
    f.line((217, 168), (217, 186))
    f.box(20, 188, 192, 64, "a", "host/model",
          ["system file, checks, placement,", "device trees, packed form"])
    f.box(223, 188, 192, 64, "a", "host/analysis",
          ["bounds, supply, planning;", "nothing of it is in the image"])
    f.box(20, 264, 192, 64, "a", "host/image, host/report",
          ["builds guests and the image;", "tables, pictures, traces"])
    f.box(223, 264, 192, 64, "a", "runner, experiments",
          ["runs in QEMU and verdicts;", "what `weir reproduce` runs"])
    f.box(20, 340, 192, 50, "d", "memsim/memory", ["caches, DRAM, DMA in time"])
    f.box(223, 340, 192, 50, "d", "memsim/system", ["a system on that model"])
    f.box(20, 402, 395, 66, "d", "tools/ and fuzz/",
          ["qemu-plugin: counts instructions, models caches",
           "clock: repeatable runs; vsock-tool: for Linux guests"])

    f.box(455, 40, 385, 100, "c", "Guests (EL1, EL0)",
          ["Linux, an RTOS, U-Boot, bare-metal programs",
           "guests/runtime: runtime for bare-metal guests",
           "guests/vsock-driver: driver of a socket device",
           "guests/service: the broker VM (EL1)"])
    f.line((500, 140), (500, 186))
    f.text(508, 168, "traps, interrupts", SMALL, kind="small")
    f.line((700, 186), (700, 140))
    f.text(708, 168, "virtual interrupts", SMALL, kind="small")
    f.box(455, 188, 385, 82, "b", "hypervisor (EL2)",
          ["registers, vectors, page tables, GIC, SMMU, counters",
           "unsafe only in arch/ and in places with a stated reason",
           "asks core/ what to do, then does it"])
    f.line((647, 270), (647, 340))
    f.text(655, 310, "hardware registers", SMALL, kind="small")
    f.box(455, 342, 385, 44, "e", "Hardware", ["Armv8-A cores, GICv2 or GICv3, PMU, SMMUv3, UART"])
    f.line((647, 386), (647, 404), arrow=False, kind="thin")
    f.box(455, 404, 385, 48, "e", "Firmware", ["PSCI; EL2 entry. Trusted, as is the loader"])
    f.line((455, 230), (424, 230), (424, 136), (417, 136))
    f.text(20, 496, "core/: decisions without registers, allocation or panic; no_std, unsafe "
           "forbidden; used by EL2, broker, host and simulator", SMALL, kind="small", limit=840)
    cells = [
        ("units, core/abi", ["quantities, identifiers,", "packed system"]),
        ("budget", ["memory-budget", "regulators"]),
        ("sched", ["schedules, admission,", "order of lock waiters"]),
        ("paging", ["page classes, table", "builder and walk"]),
        ("vdev", ["GIC, PL011, PMU, PSCI,", "PCI, trapped registers"]),
        ("vsock", ["virtqueues, packets,", "flow rules"]),
        ("broker", ["choice of packets,", "shared rings"]),
        ("trace", ["UART frames, trace,", "counter page"]),
    ]
    for i, (name, lines) in enumerate(cells):
        f.box(20 + i % 4 * 207, 508 + i // 4 * 66, 199, 60, "b", "core/" + name, lines)
    return f


def boot():
    """From the loader to the first guest."""
    f = Figure("boot", 860, 300, "Boot of weir")
    f.text(20, 28, "core 0", kind="title")
    steps = [
        ("Loader", ["image in RAM,", "x0 = device tree"], "e"),
        ("boot.s", ["stage 1, guard", "pages, MMU on"], "a"),
        ("boot_main", ["packed system,", "RAM, GIC, cache"], "a"),
        ("move", ["to own classes,", "new tables"], "d"),
        ("stage 2", ["of each VM,", "pristine images"], "a"),
        ("read back", ["walk each table,", "check owners"], "a"),
    ]
    wide, gap = 118, 22
    for i, (title, lines, color) in enumerate(steps):
        x = 20 + i * (wide + gap)
        f.box(x, 40, wide, 66, color, title, lines, center=True)
        if i:
            f.line((x - gap, 73), (x - 2, 73))
    f.text(20 + 3 * (wide + gap), 122, "only with colors or banks", SMALL, kind="small")
    x = 20 + 2 * (wide + gap)
    f.line((x + wide / 2, 106), (x + wide / 2, 140))
    f.box(x - 30, 142, wide + 60, 40, "f", "", ["mismatch: reason on the UART,", "machine off"],
          center=True)
    last = 20 + 5 * (wide + gap) + wide / 2
    f.line((last, 106), (last, 140))
    f.box(last - 90, 142, 149, 40, "a", "", ["PSCI CPU_ON", "of the other cores"], center=True)
    f.text(20, 236, "each core", kind="title")
    row = [
        ("prepare traps", ["HCR, CPTR, MDCR,", "timer, interrupts"], "a"),
        ("core of vCPU 0", ["clears RAM, copies the", "image, starts vCPU 0"], "b"),
        ("other cores of the VM", ["wait for the guest's", "CPU_ON"], "b"),
    ]
    for i, (title, lines, color) in enumerate(row):
        f.box(120 + i * 230, 210, 190, 66, color, title, lines, center=True)
    f.line((last - 15, 182), (last - 15, 196), (215, 196), (215, 208))
    f.line((310, 243), (348, 243))
    f.line((310, 230), (330, 230), (330, 202), (675, 202), (675, 208))
    return f


def modules():
    """EL2's modules with their files, in layers."""
    f = Figure("el2-modules", 860, 566, "Modules of EL2 and the files that contain them")
    f.text(20, 26, "Entry", kind="title")
    f.box(110, 12, 235, 50, "e", "arch/boot.s, boot.rs",
          ["boot_main, start_core; then each core"])
    f.box(357, 12, 235, 50, "e", "entry.rs, vcpu/traps.rs",
          ["handle_sync, handle_irq"])
    f.box(604, 12, 236, 50, "e", "vcpu/cpu.rs, mail.rs", ["per-CPU data, messages between cores"])
    f.text(20, 96, "Topics", kind="title")
    topics = [
        ("VM lifecycle", ["vcpu/lifecycle.rs, vm/ending.rs", "start, stop, restart"]),
        ("Memory of VMs", ["vm/stage2.rs, vm/load.rs", "vm/ownership.rs: read-back"]),
        ("Interrupts", ["vcpu/irq.rs", "core/vdev/src/gic: deliver_hw"]),
        ("Virtual devices", ["vcpu/devices.rs, vcpu/pmu.rs", "core/vdev"]),
        ("vCPUs of a core", ["vcpu/run.rs: run loop, vCPU switch", "vcpu/schedule.rs, vcpu/admission.rs"]),
        ("Handed-over devices", ["vm/focus.rs", "core/vdev/src/gic/mod.rs: relay"]),
        ("Memory budgets", ["budget.rs: throttle, replenish, poll", "core/budget"]),
        ("Passthrough and DMA", ["vm/pci.rs: configuration, streams", "arch/smmu, arch/ecam.rs"]),
        ("Messages", ["virtio/flows.rs", "core/vsock, core/broker"]),
        ("Network switch", ["virtio/switch.rs, virtio/service.rs", "core/vsock, core/broker"]),
        ("Trace", ["trace.rs", "core/trace: rings, records"]),
        ("Consoles", ["console/mod.rs, notice.rs", "core/trace/src/wire.rs: frames"]),
    ]
    for i, (title, lines) in enumerate(topics):
        f.box(110 + i % 3 * 247, 80 + i // 3 * 74, 235 + i % 3 // 2, 64, "a", title, lines)
    f.line((475, 62), (475, 78))
    f.text(20, 398, "Decisions", kind="title")
    f.box(110, 382, 730, 50, "b", "core/",
          ["takes values, returns decisions; tested on the host; shared with simulator and tools"])
    f.line((475, 372), (475, 380))
    f.text(20, 460, "Hardware", kind="title")
    parts = [
        ("arch/gic", "list registers"), ("arch/memory.rs", "stage 1, windows"),
        ("arch/pmu/", "counters"), ("arch/timer.rs", "EL2's timer"),
        ("arch/smmu", "streams"), ("arch/sysreg.rs", "registers"),
    ]
    for i, (title, line) in enumerate(parts):
        f.box(110 + i * 123, 444, 115, 50, "c", "", [title, line], center=True)
    f.line((475, 432), (475, 442))
    f.text(20, 520, "Board", kind="title")
    f.box(110, 504, 730, 50, "e", "board.rs, start/, packed system",
          ["UART, addresses and tables of this board and system; "
           "checked by core/abi"])
    return f


def message():
    """A packet from its sender to its receiver."""
    f = Figure("message-path", 860, 400, "The path of a packet between two VMs")
    lanes = [("Sender VM", 20), ("EL2, sender's core", 120), ("Broker VM (EL1)", 200),
             ("EL2, broker's core", 280), ("Receiver VM", 345)]
    for name, y in lanes:
        f.text(14, y + 26, name, kind="title", limit=142)
    for y in (104, 189, 268, 336):
        f.line((10, y), (850, y), arrow=False, kind="dash")
    f.box(160, 24, 150, 56, "c", "notify", ["buffer stays in", "the sender's ring"], center=True)
    f.line((235, 80), (235, 116))
    f.box(160, 118, 150, 54, "b", "stamp", ["in shared memory"], center=True)
    f.line((235, 172), (235, 198))
    f.text(242, 184, "SGI if asleep", SMALL, kind="small")
    f.box(160, 200, 150, 56, "d", "take, check", ["header copied once"], center=True)
    f.line((310, 228), (336, 228))
    f.box(338, 200, 190, 56, "d", "queue", ["earliest deadline first"], center=True)
    f.line((528, 228), (552, 228))
    f.box(554, 200, 150, 56, "d", "copy one chunk", ["paced by [dma]"], center=True)
    f.line((629, 256), (629, 276))
    f.box(554, 278, 150, 48, "b", "complete", ["interrupt pending"], center=True)
    f.line((704, 302), (775, 302), (775, 342))
    f.text(712, 296, "interrupt", SMALL, kind="small")
    f.box(700, 344, 146, 42, "c", "", ["packet in its buffers"], center=True)
    f.line((554, 247), (541, 247), (541, 262), (151, 262), (151, 52), (158, 52), kind="thin")
    f.text(300, 274, "sender's buffer returned", SMALL, kind="small")
    f.line((704, 215), (722, 215), (722, 193), (600, 193), (600, 199), kind="thin")
    f.text(732, 206, "next chunk; a more", SMALL, kind="small")
    f.text(732, 220, "urgent packet first", SMALL, kind="small")
    f.line((322, 16), (322, 145), arrow=False, kind="dash")
    f.line((310, 145), (322, 145), arrow=False, kind="dash")
    f.line((775, 16), (775, 300), arrow=False, kind="dash")
    f.line((322, 40), (775, 40))
    f.text(604, 33, "latency, compared with its bound", SMALL, "middle", "small")
    f.text(604, 60, "(starts at the packet's eligibility, if later)", SMALL, "middle", "small")
    return f


def scheduling():
    """The same two VMs under the three kinds of schedules, with one interrupt."""
    f = Figure("scheduling", 860, 400, "Three schedules of VMs a and b on one core")
    left, scale = 130, 7.0
    rows = [
        ("round-robin", "quantum = 20", 70,
         [(0, 20, "a"), (20, 20, "b"), (40, 10, "a"), (50, 20, "b"), (70, 20, "a"), (90, 10, "b")],
         "a waits at 50 and passes its slice on; its interrupt at 60 waits for the next slice"),
        ("table", "major_frame = 50", 170,
         [(0, 30, "a"), (30, 15, "b"), (50, 10, ""), (60, 20, "a"), (80, 15, "b")],
         "slots repeat at fixed times; gaps, and a's slot while a waits, stay idle"),
        ("fixed-priority", "a: 20 of 50, b", 270,
         [(0, 15, "a"), (15, 45, "b"), (60, 20, "a"), (80, 20, "b")],
         "a goes first while it has budget; woken at 60, it takes the core from b"),
    ]
    for name, detail, y, slices, note in rows:
        f.text(16, y + 14, name, kind="title", limit=110)
        f.text(16, y + 31, detail, SMALL, kind="small", limit=112)
        f.line((left, y + 38), (left + 100 * scale + 14, y + 38), kind="thin")
        for start, length, vm in slices:
            color = {"a": "a", "b": "c", "": "e"}[vm]
            f.box(left + start * scale, y, length * scale, 38, color, vm or "idle", center=True)
        for start, _, vm in slices:
            if vm:
                f.box(left + start * scale, y, 4, 38, "f")
        f.text(left, y + 56, note, SMALL, kind="small", limit=100 * scale)
    at = left + 60 * scale
    f.line((at, 40), (at, 340), arrow=False, kind="dash")
    f.text(at, 34, "interrupt for a", SMALL, "middle", "small")
    for t in range(0, 101, 10):
        f.text(left + t * scale, 356, str(t), SMALL, "middle", "small")
    f.text(16, 356, "time", SMALL, kind="small")
    f.box(left, 372, 4, 14, "f")
    f.text(left + 10, 384, "switch: costs up to `switch` of the board or schedule", SMALL,
           kind="small")
    return f


def budget():
    """Counts of one vCPU against its budget over three periods."""
    f = Figure("budget", 860, 270, "Counted accesses of a vCPU over three periods of its budget")
    left, base, period, top = 90, 200, 235, 70
    f.line((left, base), (left + 3 * period + 20, base))
    f.line((left, base), (left, 36))
    f.text(16, 30, "accesses", SMALL, kind="small")
    f.line((left, top), (left + 3 * period, top), arrow=False, kind="dash")
    f.text(16, top + 4, "budget Q", SMALL, kind="small")
    for i in range(4):
        x = left + i * period
        f.line((x, base), (x, 48), arrow=False, kind="dash")
        f.text(x, base + 17, ["0", "P", "2P", "3P"][i], SMALL, "middle", "small")
    f.box(left + 112, 60, period - 112, base - 60, "f", "", ["throttled"], center=True)
    f.line((left, base), (left + 105, top), (left + 112, top - 9), arrow=False)
    f.text(left + 118, 44, "overflow, overshoot", SMALL, kind="small")
    x = left + period
    f.line((x, base), (x + 90, 120), (x + 150, 110), (x + period, 90), arrow=False)
    f.text(x + 6, 44, "replenish, less the debt", SMALL, kind="small")
    f.line((x, 82), (x + period, 82), arrow=False, kind="thin")
    f.text(x + 60, 160, "unused budget expires", SMALL, kind="small")
    x = left + 2 * period
    f.box(x + 150, 68, period - 150, base - 68, "f", "", ["throttled"], center=True)
    f.line((x, base), (x + 80, 130), (x + 120, 128), (x + 146, top), (x + 150, top - 5),
           arrow=False)
    f.text(left, 250, "Static regulator. Pool, MemGuard and compensation use the unused part "
           "differently.", SMALL, kind="small", limit=760)
    return f


def main():
    check = "--check" in sys.argv[1:]
    stale = []
    for make in (overview, layers, boot, modules, message, scheduling, budget):
        figure = make()
        path = HERE / f"{figure.name}.svg"
        text = figure.svg()
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if FAULTS:
        sys.exit("\n".join(FAULTS))
    if stale:
        sys.exit("not up to date: " + ", ".join(stale) + "; run docs/figures/make.py")


if __name__ == "__main__":
    main()
