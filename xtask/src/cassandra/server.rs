//! The Cassandra server program: its jars, and the Java that runs them.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{Node, folder, node};
use crate::{
    process::{find_program, run_logged},
    tools::{Tool, Toolbox},
};

/// The server's version: the newest 5.0 on which the tests have passed.
const VERSION: &str = "5.0.9";
/// The time limit of Maven, which downloads a hundred jars, and of keytool.
const TOOL_LIMIT: Duration = Duration::from_secs(10 * 60);
/// The heap limit of a node. Outside of the heap a node takes about as much memory again.
const HEAP: &str = "-Xmx768m";

/// The file with the certificate of a node for tests.
pub(super) const CERTIFICATE: &str = "certificate.pem";

/// Further settings of a node of a cluster. An acknowledged write is on the disk, as in production; the server's own
/// default acknowledges it up to ten seconds earlier. The memtables are small: three nodes fit on a small machine.
const FOR_CLUSTERS: &str = "
commitlog_sync: group
commitlog_sync_group_window: 10ms
memtable_heap_space: 96MiB
memtable_offheap_space: 96MiB
";

/// The name of the script that runs nodetool on a node, and the class of nodetool.
const NODETOOL: &str = "nodetool";
const NODETOOL_CLASS: &str = "org.apache.cassandra.tools.NodeTool";

/// The options of Java for Cassandra's own tools, which run for a second.
const OPTIONS_OF_TOOLS: [&str; 2] = ["-Xmx128m", "-XX:TieredStopAtLevel=1"];

/// The purpose of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For developers, and for tests that cause faults.
    Cluster,
    /// For tests of a store, which make hundreds of tables, log in, and may encrypt.
    Tests,
}

/// The additional arguments and the environment of a node's process.
#[derive(Debug, Default)]
pub(super) struct ProcessOptions {
    /// Further arguments of Java.
    pub(super) java_arguments: &'static [&'static str],
    /// Environment variables.
    pub(super) variables: Vec<(String, String)>,
    /// The group of the process.
    pub(super) group: Option<u32>,
}

/// The installed server program, from which nodes are started.
#[derive(Debug)]
pub(crate) struct Server {
    java: PathBuf,
    jars: PathBuf,
}

impl Server {
    /// Fetches Java and the jars, and archives the classes of nodetool, once for all nodes of this version.
    pub(crate) fn fetch(toolbox: &mut Toolbox) -> Result<Self> {
        let java = toolbox.fetch(Tool::Java)?;
        let jars = folder().join(format!("jars-{VERSION}"));
        if !jars.is_dir() {
            fetch_jars(&toolbox.fetch(Tool::Maven)?, &jars)?;
        }
        let server = Self { java, jars };
        server.archive_classes_of_tools()?;
        Ok(server)
    }

    /// Stores the loaded classes of nodetool, once for all nodes. With them, nodetool takes 0.8 s instead of 1.3 s, and
    /// tests of a ring run it hundreds of times.
    fn archive_classes_of_tools(&self) -> Result<()> {
        let archive = classes_of_tools();
        if archive.is_file() {
            return Ok(());
        }
        let unfinished = archive.with_extension(format!("{}", std::process::id()));
        let mut tool = Command::new(&self.java);
        tool.arg(common_java_arguments()).args(OPTIONS_OF_TOOLS).arg("-Xlog:disable");
        tool.arg(format!("-XX:ArchiveClassesAtExit={}", unfinished.display()));
        tool.args(logging_arguments(&folder())).arg("-cp").arg(self.jars.join("*")).arg(NODETOOL_CLASS);
        // No node has this port. The attempt loads the classes for a connection.
        let output = tool.args(["-p", "1", "status"]).output().context("cannot start Java")?;
        // A Java that cannot archive classes runs the tools without an archive.
        if unfinished.is_file() {
            fs::rename(&unfinished, &archive)?;
        } else {
            println!("    no archive of nodetool's classes: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Starts node `number` of `nodes` without data. Deletes the folder of an earlier node `number`.
    pub(crate) fn start(&self, ring: &Path, number: u8, nodes: u8) -> Result<Node> {
        self.make(ring, number, nodes, Purpose::Cluster)?;
        self.run(ring, number, &ProcessOptions::default())
    }

    /// Starts a single node for the tests of a store, without data. Deletes the folder of an earlier node.
    pub(crate) fn start_for_tests(&self, ring: &Path) -> Result<Node> {
        self.make(ring, 1, 1, Purpose::Tests)?;
        let java_arguments = &[
            // Java uses the last value of an option. The tests make hundreds of tables, and write bodies of
            // 64 MiB concurrently.
            "-Xmx2g",
            "-Xms2g",
            "-XX:MaxDirectMemorySize=1g",
            // C2, Java's second compiler, took a quarter of the processor time in the node's few minutes. So C2 is off.
            "-XX:TieredStopAtLevel=1",
            // Making a table takes half the time, because its definition is only written to the commit log.
            "-Dcassandra.unsafesystem=true",
            // The node makes the user without delay. Not for a ring: there a node would retry in a tight loop until
            // it sees the other nodes.
            "-Dcassandra.superuser_setup_delay_ms=0",
        ];
        self.run(ring, 1, &ProcessOptions { java_arguments, ..ProcessOptions::default() })
    }

    /// Makes the folder of node `number` of `nodes`, with settings and tools but no data. Deletes an earlier folder.
    pub(super) fn make(&self, ring: &Path, number: u8, nodes: u8, purpose: Purpose) -> Result<()> {
        ensure!(!node::takes_cql(number), "another process listens on {} already", Node::address(number));
        let folder = ring.join(format!("n{number}"));
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot delete {}", folder.display()))?;
        }
        for part in ["logs", "tmp"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let mut settings = settings(&folder, number, nodes);
        if purpose == Purpose::Tests {
            self.write_certificate(&folder)?;
            settings.push_str(&for_tests(&folder));
        } else {
            settings.push_str(FOR_CLUSTERS);
        }
        fs::write(folder.join("cassandra.yaml"), settings)?;
        let port = format!("-p {}", management_port(number));
        self.write_tool(&folder, NODETOOL, &format!("{NODETOOL_CLASS} {port}"))?;
        self.write_tool(&folder, "sstabledump", "org.apache.cassandra.tools.SSTableExport")
    }

    /// Starts a node whose folder exists, with its data.
    pub(super) fn run(&self, ring: &Path, number: u8, options: &ProcessOptions) -> Result<Node> {
        ensure!(!node::takes_cql(number), "another process listens on {} already", Node::address(number));
        let folder = ring.join(format!("n{number}"));
        let output = File::options().create(true).append(true).open(folder.join("logs/output"))?;
        let mut command = Command::new(&self.java);
        command
            .arg(common_java_arguments())
            .arg(format!("-javaagent:{}", self.jar("jamm-")?.display()))
            .args([HEAP, "-Xms256m", "-XX:MaxDirectMemorySize=256m"])
            .args([settings_argument(&folder), storage_argument(&folder)])
            .arg(format!("-Djava.io.tmpdir={}", folder.join("tmp").display()))
            .arg(format!("-Djna.tmpdir={}", folder.join("tmp").display()))
            .args(logging_arguments(&folder))
            .arg(format!("-Dcassandra.jmx.local.port={}", management_port(number)))
            .arg("-Dcassandra-foreground=yes")
            // The tokens are fixed and no data moves, so a node need not wait for others.
            .args(["-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=2000"])
            .args(options.java_arguments)
            .arg("-cp")
            .arg(self.jars.join("*"))
            .arg("org.apache.cassandra.service.CassandraDaemon")
            .envs(options.variables.iter().cloned())
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(group) = options.group {
            command.gid(group);
        }
        let nodetool = folder.join(NODETOOL);
        Node::spawn(command, number, folder, nodetool)
    }

    /// Makes a key for the node, and the certificate by which clients recognise the node.
    fn write_certificate(&self, folder: &Path) -> Result<()> {
        let keytool = find_program("keytool").unwrap_or_else(|| self.java.with_file_name("keytool"));
        let store = ["-alias", "node", "-keystore", "node.p12", "-storepass", "rashomon"];
        let make = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-storetype", "PKCS12"];
        let name = ["-dname", "CN=rashomon-tests", "-ext", "san=ip:127.0.0.1", "-validity", "3650"];
        let export = ["-exportcert", "-rfc", "-file", CERTIFICATE];
        for arguments in [[&make[..], &name].concat(), export.to_vec()] {
            let mut command = Command::new(&keytool);
            command.args(arguments).args(store).current_dir(folder);
            let finished = run_logged(command, &folder.join("logs/keytool"), TOOL_LIMIT, |_| false)?;
            ensure!(finished.status.success(), "keytool failed, see {}", finished.log.display());
        }
        Ok(())
    }

    /// Writes a script that runs one of Cassandra's own tools on a node.
    fn write_tool(&self, folder: &Path, name: &str, class_and_options: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let script = folder.join(name);
        let [configuration, logs] = logging_arguments(folder);
        let text = format!(
            "#!/bin/sh\nexec '{}' '{}' {} '-XX:SharedArchiveFile={}' '{configuration}' '{logs}' '{}' '{}' -cp '{}/*' \
             {class_and_options} \"$@\"\n",
            self.java.display(),
            common_java_arguments(),
            OPTIONS_OF_TOOLS.join(" "),
            classes_of_tools().display(),
            settings_argument(folder),
            storage_argument(folder),
            self.jars.display(),
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    fn jar(&self, name: &str) -> Result<PathBuf> {
        let jars = fs::read_dir(&self.jars)?.filter_map(Result::ok).map(|entry| entry.path());
        let mut found = jars.filter(|jar| {
            jar.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name))
        });
        found.next().with_context(|| format!("no {name}*.jar in {}", self.jars.display()))
    }
}

/// The path of a file in `xtask/cassandra` of this checkout.
fn configuration_file(name: &str) -> PathBuf {
    crate::root().join("xtask/cassandra").join(name)
}

/// The file with the classes of nodetool. Java ignores it if it belongs to another version of Java.
fn classes_of_tools() -> PathBuf {
    folder().join(format!("classes-{VERSION}.jsa"))
}

fn common_java_arguments() -> String {
    format!("@{}", configuration_file("java.args").display())
}

fn logging_arguments(folder: &Path) -> [String; 2] {
    [
        format!("-Dlogback.configurationFile=file:{}", configuration_file("logback.xml").display()),
        format!("-Dcassandra.logdir={}", folder.join("logs").display()),
    ]
}

fn settings_argument(folder: &Path) -> String {
    format!("-Dcassandra.config=file://{}", folder.join("cassandra.yaml").display())
}

fn storage_argument(folder: &Path) -> String {
    format!("-Dcassandra.storagedir={}", folder.display())
}

fn management_port(number: u8) -> u16 {
    7198 + u16::from(number)
}

fn settings(folder: &Path, number: u8, nodes: u8) -> String {
    include_str!("../../cassandra/cassandra.yaml")
        .replace("{token}", &token(number, nodes).to_string())
        .replace("{address}", &Node::host(number))
        .replace("{folder}", &folder.display().to_string())
}

/// Further settings of a node for tests. The node requires a password (`cassandra`, of the user `cassandra`), and
/// accepts encrypted and unencrypted connections. No test kills this node and then reads its data, so no write waits
/// for the disk.
fn for_tests(folder: &Path) -> String {
    format!(
        "
commitlog_sync: periodic
commitlog_sync_period: 10s
memtable_heap_space: 256MiB
memtable_offheap_space: 256MiB
authenticator:
  class_name: PasswordAuthenticator
authorizer:
  class_name: CassandraAuthorizer
role_manager:
  class_name: CassandraRoleManager
client_encryption_options:
  enabled: true
  optional: true
  keystore: {}/node.p12
  keystore_password: rashomon
  store_type: PKCS12
",
        folder.display()
    )
}

/// The token of a node. The tokens divide the ring into parts of equal size.
fn token(number: u8, nodes: u8) -> i64 {
    let part = (1_i128 << 64) / i128::from(nodes);
    // The first token is the smallest number of 64 bits, and the parts together cover all numbers exactly.
    i64::try_from(i128::from(i64::MIN) + part * i128::from(number - 1)).unwrap_or(i64::MAX)
}

/// Downloads the jars. Maven writes files beside its project, so it gets a copy of the project. The folder of the jars
/// is moved to its place when all jars are complete.
fn fetch_jars(maven: &Path, jars: &Path) -> Result<()> {
    let project = folder().join("maven");
    let unfinished = project.join("jars");
    fs::create_dir_all(&project)?;
    fs::copy(configuration_file("pom.xml"), project.join("pom.xml"))?;
    println!("    fetching Cassandra {VERSION} from Maven Central");
    let mut command = Command::new(maven);
    command
        .args(["--batch-mode", "--quiet", "dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-Dcassandra.version={VERSION}"))
        .arg(format!("-DoutputDirectory={}", unfinished.display()))
        .current_dir(&project);
    let finished = run_logged(command, &project.join("maven.log"), TOOL_LIMIT, |_| false)?;
    ensure!(finished.status.success(), "Maven failed, see {}", finished.log.display());
    fs::rename(&unfinished, jars).with_context(|| format!("cannot move the jars to {}", jars.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_divide_the_ring_evenly() {
        assert_eq!(token(1, 1), i64::MIN);
        assert_eq!(
            [1, 2, 3].map(|number| token(number, 3)),
            [i64::MIN, -3_074_457_345_618_258_603, 3_074_457_345_618_258_602]
        );
    }

    #[test]
    fn settings_of_a_node_contain_no_unfilled_placeholder() {
        let settings = settings(Path::new("/tmp/n2"), 2, 3);
        assert!(!settings.lines().any(|line| !line.starts_with('#') && line.contains('{')), "{settings}");
        assert!(settings.contains("listen_address: 127.0.0.2"));
    }
}
