// The entry of the other cores on a board with a spin table. The firmware passes no argument, so
// Aff0 of a core's affinity is used as its number.

    .section .head.spin_table, "ax"
    .global spin_table_start
spin_table_start:
    mrs     x0, mpidr_el1
    and     x0, x0, #0xff
    b       secondary_start
