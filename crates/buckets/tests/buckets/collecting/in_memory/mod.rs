//! Over stores in memory, wherever other tests have theirs: three replicas, of which a batch reaches some; and clocks
//! that are set by hand.

mod clocks;
mod replicas;
