//! Writes text so that an XML parser returns it unchanged.

/// Appends the content of an element.
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if memchr::memchr(b'\r', bytes).is_none() {
        push(out, bytes, |rest| memchr::memchr3(b'<', b'>', b'&', rest));
    } else {
        // A parser would read a literal carriage return as a line feed.
        push(out, bytes, |rest| rest.iter().position(|byte| matches!(byte, b'<' | b'>' | b'&' | b'\r')));
    }
}

/// Appends the value of an attribute, without its quotes.
pub(super) fn push_attribute(out: &mut Vec<u8>, value: &str) {
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\t' | b'\n' | b'\r');
    push(out, value.as_bytes(), |rest| rest.iter().position(special));
}

fn push(out: &mut Vec<u8>, mut rest: &[u8], find: impl Fn(&[u8]) -> Option<usize>) {
    while let Some(index) = find(rest) {
        out.extend_from_slice(&rest[..index]);
        let reference: &[u8] = match rest[index] {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'&' => b"&amp;",
            b'"' => b"&quot;",
            b'\t' => b"&#9;",
            b'\n' => b"&#10;",
            _ => b"&#13;",
        };
        out.extend_from_slice(reference);
        rest = &rest[index + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_become_references() {
        let mut out = Vec::new();
        push_text(&mut out, "a<b>&\"c\"\n\t]]>");
        assert_eq!(out, b"a&lt;b&gt;&amp;\"c\"\n\t]]&gt;");
        out.clear();
        push_text(&mut out, "\r\n<\r");
        assert_eq!(out, b"&#13;\n&lt;&#13;");
        out.clear();
        push_attribute(&mut out, "a\"b\n\tc\r<&>");
        assert_eq!(out, b"a&quot;b&#10;&#9;c&#13;&lt;&amp;&gt;");
    }
}
