//! Tables of Rashomon in SQLite, the embedded default.
