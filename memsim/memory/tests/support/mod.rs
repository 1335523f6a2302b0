//! DRAM parts other than the one of the model's speed measurement.

use weir_memory::dram::DramTiming;

/// DDR2-800, 1 Gb x8, 5-5-5, burst of 8. From JESD79-2: tRAS 45 ns, tRC 57.5 ns, tRRD 7.5 ns, tFAW
/// 35 ns (1 KiB pages), tWTR 7.5 ns, tWR 15 ns, tRTP 7.5 ns, tRFC 127.5 ns, tREFI 7.8 us; tCCD 2
/// clocks, which a burst of 8 makes 4.
pub const DDR2_800: DramTiming = DramTiming {
    clock_ps: 2500,
    cl: 5,
    cwl: 4,
    burst: 4,
    rcd: 5,
    rp: 5,
    ras: 18,
    rc: 23,
    rrd_s: 3,
    rrd_l: 3,
    ccd_s: 4,
    ccd_l: 4,
    faw: 14,
    wtr_s: 3,
    wtr_l: 3,
    wr: 6,
    // JESD79-2: read to precharge is AL + BL/2 + max(tRTP, 2) - 2, here 4 + 3 - 2.
    rtp: 5,
    rfc: 51,
    refi: 3120,
    ppd: 0,
    // JESD79-2, read to write: BL/2 + 2, with WL = RL - 1.
    turnaround: 1,
    rank_switch: 1,
    column_slots: 1,
    activate_slots: 1,
    precharge_slots: 1,
};

/// LPDDR4-3200, 8 Gb per channel of 16 bits (two such channels in lockstep move a line of 64 B in a
/// burst of 16). From JESD209-4: RL 28, WL 14 (set A), tRCD 18 ns, tRPpb 18 ns, tRAS 42 ns, tRRD 10
/// ns, tFAW 40 ns, tCCD 8 clocks, tWTR 10 ns, tWR 18 ns, tRTP 7.5 ns, tRFCab 280 ns, tREFI 3.904
/// us. Activates take four command clocks, column commands four, precharge and refresh two; gaps
/// are counted between the first clocks of two commands. tWTR and tWR count from the clock after
/// the last data, which is one more. The 1.5 to 3.5 ns that the data come after RL (tDQSCK) are in
/// no parameter: count them to the way back.
pub const LPDDR4_3200: DramTiming = DramTiming {
    clock_ps: 625,
    cl: 28,
    cwl: 14,
    burst: 8,
    rcd: 29,
    rp: 29,
    ras: 68,
    rc: 97,
    rrd_s: 16,
    rrd_l: 16,
    ccd_s: 8,
    ccd_l: 8,
    faw: 64,
    wtr_s: 17,
    wtr_l: 17,
    wr: 30,
    // JESD209-4: read to precharge is BL/2 + max(8, tRTP) - 8.
    rtp: 12,
    rfc: 448,
    refi: 6246,
    ppd: 4,
    // JESD209-4, read to write: RL + tDQSCK (3.5 ns at most) + BL/2 - WL + tWPRE (2).
    turnaround: 8,
    rank_switch: 2,
    column_slots: 4,
    activate_slots: 4,
    precharge_slots: 2,
};
