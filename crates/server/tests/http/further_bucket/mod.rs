//! The tests of pages once more, with the bucket `docs` in place of `page`.

#[path = "../conditions.rs"]
mod conditions;
#[path = "../importing.rs"]
mod importing;
#[path = "../pages.rs"]
mod pages;
#[path = "../paging.rs"]
mod paging;
#[path = "../reading.rs"]
mod reading;
#[path = "../redirects.rs"]
mod redirects;
#[path = "../rewriting.rs"]
mod rewriting;
#[path = "../time_travel.rs"]
mod time_travel;
mod world;
#[path = "../writing.rs"]
mod writing;
