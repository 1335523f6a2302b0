//! A guest's arguments: `/chosen/bootargs` of its device tree, as `key=value` words.

/// The arguments as they stand in the device tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Args<'a>(&'a str);

impl<'a> Args<'a> {
    /// Arguments from the whole boot argument string.
    #[must_use]
    pub const fn new(bootargs: &'a str) -> Self {
        Self(bootargs)
    }

    /// The whole string, as given.
    #[must_use]
    pub const fn raw(self) -> &'a str {
        self.0
    }

    /// The value of the last word `key=value`, as a later word overrides an earlier one.
    #[must_use]
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.0
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .filter_map(|(k, value)| (k == key).then_some(value))
            .next_back()
    }

    /// The value of `key`, decimal or hexadecimal with `0x`, or `default` where the key is not
    /// given.
    ///
    /// # Panics
    ///
    /// If the value is not a number of 64 bits: a guest that was misconfigured must not
    /// run with a silent default.
    #[must_use]
    pub fn number(self, key: &str, default: u64) -> u64 {
        self.get(key).map_or(default, |value| {
            match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            }
            .unwrap_or_else(|_| panic!("argument {key}={value}: not a number"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_values_by_key() {
        let args = Args::new("period_us=500 name=a=b quiet  period_us=250");
        assert_eq!(args.get("period_us"), Some("250"));
        assert_eq!(args.get("name"), Some("a=b"));
        assert_eq!(args.get("quiet"), None);
        assert_eq!(args.get("period"), None);
        assert_eq!(args.number("period_us", 1), 250);
        assert_eq!(args.number("activations", 1000), 1000);
        assert_eq!(Args::new("victim=0x5000_0000 victim=0x50000000").number("victim", 0), 5 << 28);
    }

    #[test]
    #[should_panic(expected = "period_us=1ms")]
    fn refuses_what_is_no_number() {
        let _ = Args::new("period_us=1ms").number("period_us", 1);
    }
}
