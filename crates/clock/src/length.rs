//! Parses lengths of time in settings and requests.

use std::time::Duration;

/// Parses a length of time, such as `30s`, `1h 30m` or `90d`. A day has 24 hours.
///
/// Returns `None` for a negative length, for a length in months or years (which have no fixed length), and for any
/// text of another form.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let span = text.parse::<jiff::Span>().ok()?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_parsed_with_their_units() {
        let cases = [
            ("250ms", Some(Duration::from_millis(250))),
            ("30s", Some(Duration::from_secs(30))),
            ("1h 30m", Some(Duration::from_secs(5400))),
            ("90d", Some(Duration::from_secs(90 * 86_400))),
            ("2w", Some(Duration::from_secs(14 * 86_400))),
            ("0s", Some(Duration::ZERO)),
            ("-1d", None),
            ("1mo", None),
            ("1y", None),
            ("30", None),
            ("soon", None),
            ("", None),
        ];
        for (text, length) in cases {
            assert_eq!(parse(text), length, "{text}");
        }
    }
}
