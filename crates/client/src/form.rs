//! The form of a write.

use http::{HeaderMap, HeaderValue, header};

use crate::{Body, InputError, PropertyContent};
use rashomon_protocol::PropertyName;

/// The maximum number of properties of one write.
const MAX_PROPERTIES: usize = 64;

/// The maximum size of `_comment` and `_user` in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// The fields and properties of a write. The first invalid input is kept, and reported when the form is sent.
#[derive(Debug)]
pub(crate) struct Form {
    fields: Vec<(&'static str, String)>,
    properties: Vec<(PropertyName, PropertyContent)>,
    error: Option<InputError>,
}

impl Form {
    pub(crate) fn new() -> Self {
        Self { fields: Vec::new(), properties: Vec::new(), error: None }
    }

    /// Sets a field. A later value replaces an earlier one.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.fields.retain(|(other, _)| *other != name);
        self.fields.push((name, value));
    }

    /// Sets a field with a text of a limited size.
    pub(crate) fn set_text(&mut self, name: &'static str, text: &str) {
        if text.len() > MAX_TEXT_BYTES {
            self.refuse(field_error(name, "the text has more than 4,096 bytes"));
        }
        self.set(name, text.to_owned());
    }

    /// Returns a valid value. `None` for an error, which is reported when the form is sent.
    pub(crate) fn check<T>(&mut self, value: Result<T, InputError>) -> Option<T> {
        value.map_err(|error| self.refuse(error)).ok()
    }

    pub(crate) fn add(&mut self, name: &str, content: PropertyContent) {
        let Some(name) = self.check(PropertyName::new(name).map_err(Into::into)) else { return };
        if self.properties.iter().any(|(other, _)| *other == name) {
            self.refuse(field_error(name.as_str(), "the write has the property twice"));
        } else if self.properties.len() == MAX_PROPERTIES {
            self.refuse(field_error(name.as_str(), "the write has more than 64 properties"));
        } else {
            self.properties.push((name, content));
        }
    }

    fn refuse(&mut self, error: InputError) {
        self.error.get_or_insert(error);
    }

    /// Encodes the form as `multipart/form-data`. The boundary contains the random number `random`, so that no
    /// content contains the boundary by chance.
    pub(crate) fn encode(self, random: u128) -> Result<(HeaderMap, Body), InputError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.properties.is_empty() {
            return Err(InputError::NoProperty);
        }
        let boundary = format!("rashomon-{random:032x}");
        let mut parts: Vec<Body> = Vec::new();
        let begin =
            |name: &str| format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n");
        for (name, value) in self.fields {
            parts.push(format!("{}\r\n{value}\r\n", begin(name)).into());
        }
        for (name, content) in self.properties {
            let (headers, body) = content.into_parts()?;
            let mut beginning = begin(name.as_str()).into_bytes();
            for (name, value) in &headers {
                beginning.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
            }
            beginning.extend(b"\r\n");
            parts.extend([beginning.into(), body, "\r\n".into()]);
        }
        parts.push(format!("--{boundary}--\r\n").into());
        let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        let headers = content_type.ok().map(|value| (header::CONTENT_TYPE, value)).into_iter().collect();
        Ok((headers, Body::chain(parts)))
    }
}

fn field_error(name: &str, reason: &'static str) -> InputError {
    InputError::Field { name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn form_has_parts_with_headers() {
        let mut form = Form::new();
        form.set("_rev", "6".to_owned());
        form.set("_rev", "7".to_owned());
        // A later value of a header replaces an earlier one, as a later value of a field does.
        let html = PropertyContent::new("<p>").content_type("text/plain").header("X-A", "a");
        let html = html.header("Content-Type", "text/html").header("x-a", "b");
        form.add("html", html);
        let (headers, body) = form.encode(1).unwrap();
        let boundary = "rashomon-00000000000000000000000000000001";
        assert_eq!(headers[header::CONTENT_TYPE], format!("multipart/form-data; boundary={boundary}"));
        let length = body.length();
        let bytes = body.bytes(1000).await.unwrap();
        assert_eq!(length, Some(bytes.len() as u64));
        let expected = "--B\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n7\r\n\
            --B\r\nContent-Disposition: form-data; name=\"html\"\r\ncontent-type: text/html\r\nx-a: b\r\n\r\n<p>\r\n\
            --B--\r\n";
        assert_eq!(bytes, expected.replace('B', boundary));
    }

    #[test]
    fn invalid_forms_are_refused() {
        let form = |names: &[&str]| {
            let mut form = Form::new();
            names.iter().for_each(|name| form.add(name, PropertyContent::new("x")));
            form
        };
        let many: Vec<_> = (0..65).map(|index| format!("p{index}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(form(&many[..64]).encode(1).is_ok());
        for names in [&[][..], &["html", "html"], &["_rev"], &["a\"\r\nX: y"], &many] {
            assert!(form(names).encode(1).is_err(), "{names:?}");
        }
        let mut long = form(&["html"]);
        long.set_text("_comment", &"a".repeat(MAX_TEXT_BYTES));
        assert!(long.error.is_none());
        long.set_text("_comment", &"a".repeat(MAX_TEXT_BYTES + 1));
        assert!(matches!(long.encode(1), Err(InputError::Field { name, .. }) if name == "_comment"));
    }
}
