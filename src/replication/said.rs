//! What was said of a trouble that lasts, so that the same is not said each second.

use std::time::{Duration, Instant};

/// How often the same is said.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What was last said, and when.
#[derive(Debug, Default)]
pub(crate) struct Said {
    last: Option<(String, Instant)>,
}

impl Said {
    /// Whether this is to be said: it is something else than the last time, or was said long ago. Notes that it is.
    pub(crate) fn is_news(&mut self, what: &str, now: Instant) -> bool {
        let is_known = self.last.as_ref().is_some_and(|(said, at)| {
            said == what && now.saturating_duration_since(*at) < AGAIN_AFTER
        });
        if !is_known {
            self.last = Some((what.to_owned(), now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let (mut said, begin) = (Said::default(), common::clock::now());
        let mut at = |seconds, what| said.is_news(what, begin + Duration::from_secs(seconds));
        assert!(at(0, "no room"));
        assert!(!at(1, "no room"));
        assert!(at(2, "not the leader"));
        assert!(!at(61, "not the leader"));
        assert!(at(62, "not the leader"));
        assert!(!at(121, "not the leader"));
    }
}
