//! The description of the API of Rashomon: a table of its operations, and the OpenAPI document that is made from it.
//!
//! [`operations()`] is the table. An [`Operation`] has a request with its [`Answer`]s. [`parameters`] has the meanings
//! of the variables and the headers that the table names, and [`schemas`] has those of the bodies that clients send.
//! [`document()`] makes the document.
//!
//! The crate contains only data, and does not know the code that answers requests. The tests of the crate `server` compare
//! the table with its routes and answers.

mod document;
mod operation;
mod operations;
pub mod parameters;
pub mod schemas;

pub use document::document;
pub use operation::{Answer, Chapter, Content, Operation, RequestBody, Verb, names_in};
pub use operations::{PAGE, operations};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_operations_are_unique() {
        let names: BTreeSet<_> = operations().map(|operation| operation.id).collect();
        assert_eq!(names.len(), operations().count());
    }
}
