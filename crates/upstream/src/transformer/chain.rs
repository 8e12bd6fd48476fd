//! The shortest chain of steps between two versions.

use std::{collections::VecDeque, fmt};

use rashomon_protocol::spec_version::Profile;

/// The versions that a step leads from and to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The version that the step takes. `None`: every earlier version of the spec.
    pub(crate) from: Option<Profile>,
    pub(crate) to: Profile,
}

impl Ends {
    /// Whether the step takes a document of this version.
    pub(crate) fn take(&self, version: &Profile) -> bool {
        match &self.from {
            Some(from) => version.satisfies(from),
            None => self.to.is_later_than(version),
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => write!(f, "{} to {}", from.version(), self.to.version()),
            None => write!(f, "earlier versions to {}", self.to.version()),
        }
    }
}

/// Finds the shortest chain of steps from `stored` to a version that satisfies `wanted`. Returns the indexes of the
/// steps, or `None` if there is no such chain. Of several shortest chains, returns the first.
pub(crate) fn shortest(steps: &[Ends], stored: &Profile, wanted: &Profile) -> Option<Vec<usize>> {
    // For each step that is reached: its predecessor in the shortest chain that leads to it, if it has one.
    let mut reached: Vec<Option<Option<usize>>> = vec![None; steps.len()];
    let mut waiting = VecDeque::from([(None, stored)]);
    while let Some((last, version)) = waiting.pop_front() {
        if let Some(last) = last
            && version.satisfies(wanted)
        {
            let mut chain = vec![last];
            let mut step = last;
            while let Some(Some(before)) = reached[step] {
                chain.push(before);
                step = before;
            }
            chain.reverse();
            return Some(chain);
        }
        for (index, step) in steps.iter().enumerate() {
            if reached[index].is_none() && step.take(version) {
                reached[index] = Some(last);
                waiting.push_back((Some(index), &step.to));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(version: &str) -> Profile {
        Profile::parse(&format!("https://example.org/html/{version}")).unwrap()
    }

    fn chain(steps: &[(&str, &str)], stored: &str, wanted: &str) -> Option<Vec<usize>> {
        let ends = |(from, to): &(&str, &str)| Ends { from: Some(profile(from)), to: profile(to) };
        shortest(&steps.iter().map(ends).collect::<Vec<_>>(), &profile(stored), &profile(wanted))
    }

    #[test]
    fn shortest_chain_is_found() {
        let steps = &[("3.0.0", "2.8.0"), ("2.0.0", "1.5.0"), ("3.1.0", "1.2.0"), ("1.0.0", "3.0.0")];
        assert_eq!(chain(steps, "3.0.0", "2.8.0"), Some(vec![0]));
        assert_eq!(chain(steps, "3.0.0", "1.5.0"), Some(vec![0, 1]));
        assert_eq!(chain(steps, "3.1.0", "1.2.0"), Some(vec![2]));
        // Only the long way leads to 1.5, and the short way of 3.1 does not exist for 3.0.
        assert_eq!(chain(steps, "3.1.0", "1.5.0"), Some(vec![0, 1]));
        assert_eq!(chain(steps, "3.0.0", "1.2.0"), Some(vec![0, 1]));
        assert_eq!(chain(steps, "2.8.0", "3.0.0"), Some(vec![1, 3]));
    }

    #[test]
    fn chain_that_does_not_exist_is_not_found() {
        let steps = &[("3.0.0", "2.8.0"), ("2.8.0", "3.0.0")];
        assert_eq!(chain(steps, "3.0.0", "2.9.0"), None);
        assert_eq!(chain(steps, "3.0.0", "1.0.0"), None);
        assert_eq!(chain(steps, "2.7.0", "3.0.0"), None);
        assert_eq!(chain(&[], "3.0.0", "2.9.0"), None);
        let other = Profile::parse("https://example.org/other/2.8.0").unwrap();
        let ends = [Ends { from: Some(profile("3.0.0")), to: profile("2.8.0") }];
        assert_eq!(shortest(&ends, &profile("3.0.0"), &other), None);
    }

    #[test]
    fn step_without_a_beginning_takes_every_earlier_version() {
        let ends = [Ends { from: None, to: profile("2.8.0") }];
        for (stored, chain) in
            [("1.0.0", Some(vec![0])), ("2.7.9", Some(vec![0])), ("2.8.9", None), ("3.0", None)]
        {
            assert_eq!(shortest(&ends, &profile(stored), &profile("2.8.0")), chain, "{stored}");
        }
        let other = Profile::parse("https://example.org/other/1.0.0").unwrap();
        assert_eq!(shortest(&ends, &other, &profile("2.8.0")), None);
    }
}
