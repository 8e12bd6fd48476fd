//! The tokens of an XML parser, with limits. Refuses constructs that exports never contain.

use std::{borrow::Cow, io::Read};

use quick_xml::{
    Error, Reader, XmlVersion,
    events::{BytesDecl, BytesRef, BytesStart, Event},
};
use rashomon_pages::excerpt;

use super::{chars, schema};
use crate::{
    LeftOut, Problem,
    input::{Input, OverBudget},
};

/// The maximum depth of nested elements; exports have five levels.
const MAX_DEPTH: usize = 64;
/// The maximum size of a tag with its attributes, in bytes.
const MAX_TAG_BYTES: usize = 1 << 16;
/// The maximum number of attributes of a tag.
const MAX_ATTRIBUTES: usize = 64;
/// The maximum size of a title, a name, a comment or any other field that is not the text of a revision, in
/// bytes.
pub(super) const MAX_FIELD_BYTES: usize = 1 << 16;

/// The maximum number of bytes that are reserved for a text because of its declared size.
const MAX_RESERVED_BYTES: usize = 1 << 20;

/// The name of the root.
pub(super) const ROOT: &str = "mediawiki";

/// A part of a document.
pub(super) enum Token<'a> {
    /// The start tag of an element, also of an empty one.
    Start(BytesStart<'a>),
    /// The end of an element.
    End,
    /// Characters as they are in the document. Line ends are not normalised yet.
    Text(Cow<'a, str>),
    /// One character, written as a reference.
    Char(char),
    /// A token without a meaning, such as a comment.
    Nothing,
    /// The end of the document.
    Eof,
}

impl Token<'_> {
    /// Whether the token has no characters between tags, or only spaces.
    pub(super) fn is_space(&self) -> bool {
        match self {
            Self::Text(text) => text.trim_ascii().is_empty(),
            Self::Char(_) => false,
            Self::Start(_) | Self::End | Self::Nothing | Self::Eof => true,
        }
    }
}

/// The tokens of a document.
pub(super) struct Tokens<R> {
    xml: Reader<Input<R>>,
    buffer: Vec<u8>,
    budget: usize,
    depth: usize,
    /// Whether the root is open. A part of an input may end within the root, and later parts have its end, but not its
    /// beginning.
    root_is_open: bool,
    line: u64,
    offset: u64,
    /// Describes the first element below the root whose namespace is not that of exports, since it was taken.
    foreign: Option<String>,
}

impl<R: Read> Tokens<R> {
    /// Reads the tokens of an input. No token may be larger than `max_text` bytes plus [`MAX_TAG_BYTES`].
    pub(super) fn new(input: Input<R>, max_text: usize) -> Self {
        Self {
            xml: parser(input),
            buffer: Vec::new(),
            budget: max_text.saturating_add(MAX_TAG_BYTES),
            depth: 0,
            root_is_open: false,
            line: 1,
            offset: 0,
            foreign: None,
        }
    }

    /// Skips the rest of the part of the input that is being read, and begins the next one: see
    /// [`Input::split_at_pages`]. Returns `false` if there is none.
    pub(super) fn next_part(&mut self) -> Result<bool, Problem> {
        if !self.xml.get_mut().next_part().map_err(Problem::from_io_error)? {
            return Ok(false);
        }
        let input = self.xml.get_mut().move_out();
        self.xml = parser(input);
        self.xml.config_mut().allow_unmatched_ends = true;
        self.depth = usize::from(self.root_is_open);
        Ok(true)
    }

    /// Records that the root has begun or ended.
    pub(super) const fn set_root(&mut self, is_open: bool) {
        self.root_is_open = is_open;
    }

    /// Whether the input was read to its end, and not only to the end of a part.
    pub(super) fn is_at_end(&self) -> bool {
        self.xml.get_ref().saw_end()
    }

    /// The number of open elements.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    /// Sets the position of the problem that is returned next to an earlier token.
    pub(super) const fn set_position(&mut self, (line, offset): (u64, u64)) {
        (self.line, self.offset) = (line, offset);
    }

    /// Takes the description of an element whose namespace is not that of exports. The reader reports that of the root.
    pub(super) fn take_foreign(&mut self) -> Option<String> {
        self.foreign.take()
    }

    /// Returns the next token.
    pub(super) fn next(&mut self) -> Result<Token<'_>, Problem> {
        self.buffer.clear();
        let input = self.xml.get_mut();
        input.set_budget(self.budget);
        (self.line, self.offset) = (input.line(), input.offset());
        let event = match self.xml.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(error) => return Err(problem(error, self.xml.get_ref().saw_end(), self.budget)),
        };
        match event {
            Event::Text(text) => Ok(Token::Text(text.into_inner())),
            Event::CData(text) => Ok(Token::Text(text.into_inner())),
            Event::GeneralRef(reference) => Ok(Token::Char(character(&reference)?)),
            Event::Start(start) | Event::Empty(start) => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Problem::TooLarge(format!("elements are nested more than {MAX_DEPTH} deep")));
                }
                if start.len() > MAX_TAG_BYTES {
                    return Err(Problem::TooLarge(format!("a tag has more than {MAX_TAG_BYTES} bytes")));
                }
                if self.foreign.is_none() && start.name().as_ref() != ROOT {
                    self.foreign = describe_foreign(&start, self.line);
                }
                Ok(Token::Start(start))
            }
            // In a part, this is the end of an element that began in an earlier part, which was broken.
            Event::End(end)
                if self.depth == 0
                    || (self.depth == 1 && self.root_is_open && end.name().as_ref() != ROOT) =>
            {
                Ok(Token::Nothing)
            }
            Event::End(_) => {
                self.depth -= 1;
                Ok(Token::End)
            }
            Event::Comment(_) | Event::PI(_) => Ok(Token::Nothing),
            Event::Decl(declaration) => {
                if self.depth > 0 {
                    return Err(Problem::Malformed(
                        "an XML declaration in the middle of a document".to_owned(),
                    ));
                }
                check_declaration(&declaration)?;
                Ok(Token::Nothing)
            }
            Event::DocType(name) if name.trim_ascii_start().get(..4).is_some_and(is_html) => {
                let what = "not a MediaWiki export, but a web page, perhaps with an error message: download the \
                            export again";
                Err(Problem::Unsupported(what.to_owned()))
            }
            Event::DocType(_) => {
                let what = "DOCTYPE is not supported: exports have none, and entities are not expanded";
                Err(Problem::Unsupported(what.to_owned()))
            }
            Event::Eof if !self.xml.get_ref().saw_end() => {
                if self.depth > usize::from(self.root_is_open) {
                    return Err(Problem::Malformed(
                        "it is not closed before the next page begins".to_owned(),
                    ));
                }
                Ok(Token::Eof)
            }
            Event::Eof => {
                if self.depth > 0 {
                    return Err(Problem::CutShort(format!("{} elements are not closed", self.depth)));
                }
                Ok(Token::Eof)
            }
        }
    }

    /// Reads the text of the element that has just begun, up to its end, as an XML parser returns it, with
    /// normalised line ends (XML 1.0, section 2.11). Fails if the text is larger than `limit` bytes.
    pub(super) fn text(&mut self, limit: usize) -> Result<String, Problem> {
        self.text_with_size_hint(0, limit)
    }

    /// Like [`Self::text`]. `bytes` is the declared size of the text.
    pub(super) fn text_with_size_hint(&mut self, bytes: usize, limit: usize) -> Result<String, Problem> {
        let mut text = String::with_capacity(bytes.min(MAX_RESERVED_BYTES));
        let begin = self.position();
        loop {
            match self.next()? {
                Token::End => {
                    // The whole text is checked at once, since there may be a token for every few characters.
                    let forbidden_character = chars::first_forbidden(&text);
                    return forbidden_character.map_or(Ok(text), |character| {
                        (self.line, self.offset) = begin;
                        Err(forbidden(character))
                    });
                }
                Token::Nothing => {}
                Token::Char(character) => text.push(character),
                Token::Text(raw) => push_normalised(&mut text, &raw),
                Token::Start(start) => {
                    let name = shorten_name(start.name().as_ref());
                    return Err(Problem::Malformed(format!("element <{name}> in the middle of a text")));
                }
                // Cannot happen: `next` fails if the document ends within an element.
                Token::Eof => return Err(Problem::CutShort("it ends within a text".to_owned())),
            }
            if text.len() > limit {
                return Err(Problem::TooLarge(format!("a text has more than {limit} bytes")));
            }
        }
    }

    /// Reads a field that is not the text of a revision. `None` if the field is empty.
    pub(super) fn field(&mut self) -> Result<Option<String>, Problem> {
        Ok(Some(self.text(MAX_FIELD_BYTES)?).filter(|text| !text.is_empty()))
    }

    /// Reads a field without the spaces around it. `None` if the field is empty.
    pub(super) fn word(&mut self) -> Result<Option<String>, Problem> {
        let text = self.text(MAX_FIELD_BYTES)?;
        let word = text.trim_ascii();
        Ok((!word.is_empty()).then(|| word.to_owned()))
    }

    /// Skips the element that has just begun, with its content.
    pub(super) fn skip(&mut self) -> Result<(), Problem> {
        let depth = self.depth;
        while self.depth >= depth {
            self.next()?;
        }
        Ok(())
    }

    /// The line and the offset of the last token.
    pub(super) const fn position(&self) -> (u64, u64) {
        (self.line, self.offset)
    }

    /// The line and the offset up to which the document has been read.
    pub(super) fn reached(&self) -> (u64, u64) {
        let input = self.xml.get_ref();
        (input.line(), input.offset())
    }
}

/// Describes an element that has a namespace of its own, which is not that of exports.
fn describe_foreign(start: &BytesStart<'_>, line: u64) -> Option<String> {
    const ATTRIBUTE: &str = "xmlns";
    // Hardly any element has it, and texts have many attributes.
    memchr::memmem::find(start.as_bytes(), ATTRIBUTE.as_bytes())?;
    // An invalid attribute is an error only where attributes are read.
    let namespace = attribute(start, ATTRIBUTE).ok()??;
    (!schema::is_of_exports(&namespace)).then(|| {
        format!(
            "line {line}: <{}> has the namespace {:?}, which is not that of an export: elements are read by their names",
            shorten_name(start.name().as_ref()),
            LeftOut::shorten(&namespace)
        )
    })
}

fn is_html(name: &str) -> bool {
    name.eq_ignore_ascii_case("html")
}

fn parser<R: Read>(input: Input<R>) -> Reader<Input<R>> {
    let mut xml = Reader::from_reader(input);
    let config = xml.config_mut();
    config.expand_empty_elements = true;
    config.check_end_names = true;
    xml
}

/// Calls `each` with the names and values of an element's attributes.
pub(super) fn attributes(start: &BytesStart<'_>, mut each: impl FnMut(&str, String)) -> Result<(), Problem> {
    for (index, attribute) in start.attributes().enumerate() {
        let attribute = attribute
            .map_err(|error| Problem::Malformed(format!("invalid attribute: {}", excerpt(error))))?;
        if index == MAX_ATTRIBUTES {
            return Err(Problem::TooLarge(format!("a tag has more than {MAX_ATTRIBUTES} attributes")));
        }
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value =
            value.map_err(|error| Problem::Malformed(format!("invalid attribute: {}", excerpt(error))))?;
        if let Some(character) = chars::first_forbidden(&value) {
            return Err(forbidden(character));
        }
        each(attribute.key.as_ref(), value.into_owned());
    }
    Ok(())
}

/// Returns the attribute with this name.
pub(super) fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, Problem> {
    let mut found = None;
    attributes(start, |key, value| {
        if key == name {
            found = Some(value);
        }
    })?;
    Ok(found)
}

/// Shortens a name for a message.
pub(super) fn shorten_name(name: &str) -> String {
    name.chars().take(64).collect()
}

fn push_normalised(text: &mut String, raw: &str) {
    let mut rest = raw;
    while let Some(index) = memchr::memchr(b'\r', rest.as_bytes()) {
        text.push_str(&rest[..index]);
        text.push('\n');
        rest = &rest[index + 1..];
        rest = rest.strip_prefix('\n').unwrap_or(rest);
    }
    text.push_str(rest);
}

fn character(reference: &BytesRef<'_>) -> Result<char, Problem> {
    let resolved = reference.resolve_char_ref();
    let resolved = resolved
        .map_err(|error| Problem::Malformed(format!("invalid character reference: {}", excerpt(error))))?;
    let character = match (resolved, &**reference) {
        (Some(character), _) => character,
        (None, "lt") => '<',
        (None, "gt") => '>',
        (None, "amp") => '&',
        (None, "quot") => '"',
        (None, "apos") => '\'',
        (None, name) => {
            return Err(Problem::Malformed(format!(
                "the entity &{}; is not one of the five that XML predefines",
                shorten_name(name)
            )));
        }
    };
    if chars::is_allowed(character) { Ok(character) } else { Err(forbidden(character)) }
}

fn forbidden(character: char) -> Problem {
    Problem::Malformed(format!("the character U+{:04X} is not allowed in XML", u32::from(character)))
}

fn check_declaration(declaration: &BytesDecl<'_>) -> Result<(), Problem> {
    match declaration.encoding() {
        None => Ok(()),
        Some(Ok(encoding))
            if ["utf-8", "utf8", "us-ascii", "ascii"].contains(&&*encoding.to_ascii_lowercase()) =>
        {
            Ok(())
        }
        Some(Ok(encoding)) => {
            let encoding = shorten_name(&encoding);
            Err(Problem::Unsupported(format!("the encoding is {encoding:?}: only UTF-8 is supported")))
        }
        Some(Err(error)) => Err(Problem::Malformed(format!("invalid XML declaration: {}", excerpt(error)))),
    }
}

fn problem(error: Error, saw_end: bool, budget: usize) -> Problem {
    match error {
        Error::Io(error)
            if error.get_ref().and_then(|inner| inner.downcast_ref::<OverBudget>()).is_some() =>
        {
            Problem::TooLarge(format!("a text or a tag has more than {budget} bytes"))
        }
        Error::Io(error) => Problem::from_io_error(error),
        // The parser reports an error because the input ended early.
        error if saw_end => Problem::CutShort(excerpt(error)),
        Error::Encoding(_) => Problem::Malformed("the input has a byte that is not UTF-8".to_owned()),
        error => Problem::Malformed(excerpt(error)),
    }
}
