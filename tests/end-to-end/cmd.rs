//! The cases in `cmd/`: calls of `weir` with what they print and their exit status.

#[test]
fn calls_print_the_expected_output() {
    trycmd::TestCases::new()
        .default_bin_name("weir")
        .env("WEIR_ROOT", ".")
        .env("WEIR_COMMAND", "weir")
        .case("../../tests/end-to-end/cmd/*.trycmd");
}
