//! A network namespace in which nodes can be cut off from one another.

use std::{
    convert::Infallible,
    env,
    io::Write,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::cassandra::Node;

/// The port for the traffic between nodes.
const STORAGE_PORT: u16 = 7_000;
/// The group id of the process of node `n` is this number plus `n`. No other process has these groups.
const FIRST_GROUP_ID: u32 = 60_000;

const NO_UNSHARE: &str = "cannot run unshare (Debian: util-linux)";

/// The group that the process of a node must have, so that the packet filter can recognise its packets. On the
/// loopback, the address of a sender does not identify the node.
pub(super) fn group(number: u8) -> u32 {
    FIRST_GROUP_ID + u32::from(number)
}

/// Checks that network namespaces can be made. This needs root, and a container may forbid it even to root.
pub(crate) fn check_support() -> Result<()> {
    let output = unshare().arg("true").output().context(NO_UNSHARE)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cannot make a network namespace (this needs root, and a container may forbid it): {said}"
    );
    Ok(())
}

/// Replaces this process by the same program with further arguments, in a network namespace of its own. Its
/// packet filter and its listeners affect no other process. It also has a process namespace, so that all its
/// processes end with it, for whatever reason it ends. Returns only if this fails.
pub(super) fn restart_in_namespace(further: &[&str]) -> Result<Infallible> {
    let mut command = unshare();
    command.arg(env::current_exe()?).args(env::args_os().skip(1)).args(further);
    Err(command.exec()).context(NO_UNSHARE)
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]);
    command
}

/// Brings the loopback up. A new network namespace has nothing else.
pub(super) fn bring_up() -> Result<()> {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("cannot run ip")?;
    ensure!(status.success(), "the loopback cannot be brought up: {status}");
    Ok(())
}

/// Separates a node from the others, in both directions. Clients still reach the node.
pub(super) fn cut_off(number: u8) -> Result<()> {
    let (host, group) = (Node::host(number), group(number));
    filter(&format!(
        "table ip faults {{\n\
           chain output {{\n\
             type filter hook output priority 0;\n\
             meta skgid {group} tcp dport {STORAGE_PORT} drop\n\
             ip daddr {host} tcp dport {STORAGE_PORT} drop\n\
             ip saddr {host} tcp sport {STORAGE_PORT} drop\n\
           }}\n\
         }}\n"
    ))
}

/// Lets all packets through again.
pub(super) fn heal() -> Result<()> {
    filter("flush ruleset\n")
}

fn filter(rules: &str) -> Result<()> {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = nft.spawn().context("cannot run nft (Debian: nftables)")?;
    running.stdin.take().context("nft has no input")?.write_all(rules.as_bytes())?;
    let output = running.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft refused these rules: {said}\n{rules}");
    Ok(())
}
