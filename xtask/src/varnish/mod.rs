//! A real Varnish with `docs/varnish.vcl`, for tests and benchmarks.

pub mod backend;
pub mod cached;
pub mod interleaved;
pub mod message;
pub mod rules;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::service::{Service, free_address};

/// The file that operators use.
const VCL: &str = "docs/varnish.vcl";

/// The ports of the backends in [`VCL`]: the server, and the two servers of one bucket.
const PORTS: [&str; 3] = ["7231", "7232", "7233"];

/// The memory for stored answers, in the notation of Varnish.
const STORAGE: &str = "malloc,128m";

/// What `cargo xtask varnish` checks.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder into which the packages of Varnish and its modules were unpacked, or / if they are installed.
    #[arg(long, global = true, value_name = "FOLDER", default_value = "/")]
    varnish: PathBuf,
    #[command(subcommand)]
    check: Check,
}

#[derive(Debug, Subcommand)]
enum Check {
    /// Check each rule of the VCL with scripted servers.
    Rules,
    /// Send interleaved reads and writes through two caches, kill the server in between, and check that no read after
    /// an acknowledged purge returns an older version.
    Interleaved {
        /// The program `rashomon`.
        #[arg(long, value_name = "FILE")]
        binary: PathBuf,
        #[command(flatten)]
        options: interleaved::Options,
    },
}

/// Checks `docs/varnish.vcl` with a real Varnish.
pub fn run(options: &Options) -> Result<bool> {
    let files = Files::find_below(&options.varnish)?;
    match &options.check {
        Check::Rules => println!("{} rules hold", rules::run(&files)?),
        Check::Interleaved { binary, options } => interleaved::run(&files, binary, options)?,
    }
    Ok(true)
}

/// The files of Varnish and its modules, below one folder.
#[derive(Debug, Clone)]
pub struct Files {
    program: PathBuf,
    /// The folder of the libraries.
    libraries: PathBuf,
}

impl Files {
    /// Finds the files below `folder`. That is the folder into which Debian's packages were unpacked, or `/` if they
    /// are installed.
    pub fn find_below(folder: &Path) -> Result<Self> {
        let program = folder.join("usr/sbin/varnishd");
        ensure!(
            program.is_file(),
            "varnishd not found at {}: install varnish, or set --varnish to the folder with the unpacked packages",
            program.display()
        );
        let library_root = folder.join("usr/lib");
        for entry in fs::read_dir(&library_root)? {
            let libraries = entry?.path();
            if libraries.join("varnish/vmods/libvmod_xkey.so").is_file() {
                return Ok(Self { program, libraries });
            }
        }
        anyhow::bail!(
            "libvmod_xkey.so not found below {}: install varnish-modules, or set --varnish to the folder with the \
             unpacked packages",
            library_root.display()
        )
    }
}

/// Returns the text of `docs/varnish.vcl` with the ports of the backends of a test. The hosts stay 127.0.0.1.
pub fn vcl(backends: [SocketAddr; 3]) -> Result<String> {
    let mut vcl = fs::read_to_string(crate::root().join(VCL))?;
    for (port, address) in PORTS.into_iter().zip(backends) {
        let found = format!(".port = \"{port}\";");
        ensure!(vcl.matches(&found).count() == 1, "{VCL} must contain '{found}' exactly once");
        vcl = vcl.replace(&found, &format!(".port = \"{}\";", address.port()));
    }
    Ok(vcl)
}

/// Starts Varnish with a VCL. All files that the instance writes are below `folder`. Two running instances must not
/// share a folder.
pub fn start(files: &Files, vcl: &str, folder: &Path) -> Result<Service> {
    fs::create_dir_all(folder)?;
    let file = folder.join("varnish.vcl");
    fs::write(&file, vcl)?;
    let address = free_address()?;
    let libraries = &files.libraries;
    let modules = libraries.join("varnish/vmods");
    let path = std::env::join_paths([libraries.clone(), libraries.join("varnish")])?;
    let mut command = Command::new(&files.program);
    command
        .args(["-F", "-j", "none", "-s", STORAGE, "-t", "0", "-a", &address.to_string()])
        .args(["-p", &format!("vmod_path={}", modules.display())])
        .args(["-p", "http_gzip_support=off", "-p", "backend_idle_timeout=30"])
        .arg("-n")
        .arg(folder.join("work"))
        .arg("-f")
        .arg(&file)
        .env("LD_LIBRARY_PATH", path);
    Service::start_command(address, command, &folder.join("varnish.log"))
        .context("cannot start Varnish (to compile the VCL, it needs a C compiler)")
}
