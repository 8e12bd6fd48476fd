//! Backups and restores of real stores.

mod damage;
mod interruptions;
mod stores;
mod taking;
mod writing;
