//! The end of the program, on all nodes: its exit, lost nodes, protocol violations, errors.

use std::time::{Duration, Instant};

use coherence::message::NodeId;
use launch::{control, status};
use net::mesh::{Gone, Mesh, Received};
use node::flush::FLUSH;

use super::state::Agent;
use crate::frame::{Frame, Message};

/// Time that a node over UCX waits before it exits, after the order to exit.
const EXIT_DELAY: Duration = Duration::from_millis(50);
/// Time limit for other nodes to begin, after the program has ended.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// Longest sleep between two looks at the command that has started the nodes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for the command to report the wait status of a lost node's process.
const STATUS_MAX: Duration = Duration::from_millis(200);

impl Agent {
    /// Ends the program because a node sent a message that no correct node sends.
    pub(super) fn violation(&mut self, from: NodeId, what: &str) -> ! {
        let name = self.names[from as usize].clone();
        self.end(1, &format!("{name} sent {what} that violates the protocol; install the same nagaya there and here"))
    }

    /// Ends the program because a node is lost. The origin names the node, the reason, and the wait
    /// status of its process if the command started it on this machine.
    pub(super) fn lost(&mut self, node: NodeId, why: &str) -> ! {
        if self.origin.is_none() {
            self.send(0, Frame::Word(Message::Lost { node }), why.as_bytes().to_vec());
            self.quit(1)
        }
        let mut line = format!("{} is lost: {why}", self.names[node as usize]);
        if let Some(status) = control::wait_status(node, STATUS_MAX) {
            line += &format!("; its process {}", status::describe(status));
        }
        self.end(1, &line)
    }

    /// Ends the program, on all nodes.
    pub(super) fn end(&mut self, status: i32, line: &str) -> ! {
        if !line.is_empty() && self.origin.is_some() {
            proc::error_line!("nagaya: span: {line}");
        }
        if line.is_empty() {
            self.write_report();
            self.wait_for_beginners();
        }
        if let Some(mesh) = &mut self.engine.mesh {
            let end = Frame::Word(Message::Exit { status }).bytes();
            match self.origin {
                Some(_) => mesh.send_all(&end, line.as_bytes()),
                None => {
                    let _ = mesh.send(0, &end, line.as_bytes().to_vec());
                }
            }
        }
        self.quit(status)
    }

    /// At the origin: waits until all nodes have begun or are lost. A short program may end first,
    /// and a node that still begins would report the end of another node as an error.
    fn wait_for_beginners(&mut self) {
        let until = Instant::now() + BEGIN_MAX;
        while self.origin.as_ref().is_some_and(|origin| origin.has_begun.contains(&false)) {
            let soon = Instant::now() + LOOK_INTERVAL;
            let received = self.engine.mesh.as_mut().and_then(|mesh| mesh.wait(soon));
            match received {
                Some(Ok(Received { from, header, body })) => {
                    // The program needs no other messages.
                    if let Some(Frame::Word(message @ (Message::Begun | Message::QueryTime))) =
                        Frame::parse(&header)
                    {
                        self.handle_at_origin(from, message, &body);
                    }
                }
                Some(Err(Gone::Left(node) | Gone::Lost(node, _))) => {
                    self.note_begun(node);
                }
                None if control::is_closed() || Instant::now() > until => return,
                None => {}
            }
        }
    }

    /// At the origin: a node has begun, or it is lost and never will.
    pub(super) fn note_begun(&mut self, node: NodeId) {
        let has_begun = &mut self.origin().has_begun;
        has_begun[node as usize] = true;
        if !has_begun.contains(&false) {
            self.table.note_all_have_begun();
        }
    }

    /// Ends this process after the messages to other nodes have left.
    fn quit(&mut self, status: i32) -> ! {
        if let Some(mesh) = &mut self.engine.mesh {
            FLUSH.run(mesh);
        }
        exit(status)
    }

    /// The origin has ended the program, and reported the cause.
    pub(super) fn exit_as_told(&mut self, status: i32) -> ! {
        // Before 1.14 UCX may abort a process in which it notices that a peer has gone.
        if self.engine.mesh.as_ref().is_some_and(Mesh::has_ucx) {
            std::thread::sleep(EXIT_DELAY);
        }
        exit(status)
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: _exit(2) takes no pointers, and nothing of this process runs after it.
    unsafe { libc::_exit(status) }
}
