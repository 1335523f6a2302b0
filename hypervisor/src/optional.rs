//! Values that belong to an optional part of the hypervisor.

/// A value of an optional part, or none. A build without the part (`BUILT` is false) has none, and
/// the compiler knows that; so it leaves out the code that needs the value.
pub struct Optional<T, const BUILT: bool>(Option<T>);

impl<T, const BUILT: bool> Optional<T, BUILT> {
    /// The absence of a value.
    pub const NONE: Self = Self(None);

    /// Holds `value`.
    #[must_use]
    pub const fn new(value: Option<T>) -> Self {
        Self(value)
    }

    /// Returns the value to read.
    #[inline(always)]
    #[must_use]
    pub const fn as_ref(&self) -> Option<&T> {
        if BUILT { self.0.as_ref() } else { None }
    }

    /// Returns the value to change.
    #[inline(always)]
    #[must_use]
    pub const fn as_mut(&mut self) -> Option<&mut T> {
        if BUILT { self.0.as_mut() } else { None }
    }

    /// Takes the value out.
    #[inline(always)]
    #[must_use]
    pub const fn take(&mut self) -> Self {
        Self(if BUILT { self.0.take() } else { None })
    }

    /// Returns whether there is a value.
    #[inline(always)]
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.as_ref().is_some()
    }

    /// Returns whether there is no value.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        !self.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_part_has_no_value() {
        let mut with = Optional::<_, true>::new(Some(7));
        assert_eq!((with.as_ref(), with.is_none()), (Some(&7), false));
        assert_eq!(with.as_mut(), Some(&mut 7));
        assert!(with.take().is_some() && with.is_none());
        let mut without = Optional::<_, false>::new(Some(7));
        assert_eq!((without.as_ref(), without.is_some()), (None, false));
        assert!(without.as_mut().is_none() && without.take().is_none());
    }
}
