//! The resources that the steps share: the tools, and a Cassandra node.

use anyhow::Result;

use super::{Lane, cassandra::TestNode};
use crate::{cassandra::Node, tools::Toolbox};

/// The tools, and a node for the steps that need one.
#[derive(Debug)]
pub(super) struct StepResources {
    pub(super) lane: Lane,
    pub(super) toolbox: Toolbox,
    /// The Cassandra node, from the time at which its start began.
    node: Option<TestNode>,
}

impl StepResources {
    pub(super) fn new(must_have_all: bool, lane: Lane) -> Self {
        Self { lane, toolbox: Toolbox::new(must_have_all), node: None }
    }

    /// Starts a Cassandra node in the background, unless it was started before.
    pub(super) fn begin_node(&mut self) -> &mut TestNode {
        self.node.get_or_insert_with(|| TestNode::begin(self.toolbox.must_have_all()))
    }

    /// Waits until the Cassandra node accepts CQL connections, and returns it. `None`: the environment names
    /// a node.
    pub(super) fn node(&mut self) -> Result<Option<&mut Node>> {
        self.begin_node().wait()
    }

    /// Ends the Cassandra node. If the node is still starting, waits for that first, so that its process is
    /// not left behind.
    pub(super) fn end_node(&mut self) {
        if let Some(mut node) = self.node.take() {
            // If the start failed, there is nothing to end.
            let _ = node.wait();
        }
    }
}
