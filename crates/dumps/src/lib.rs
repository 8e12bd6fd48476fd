//! Readers and writers of whole histories: MediaWiki XML and JSON lines.
