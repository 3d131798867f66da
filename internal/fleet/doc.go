// Package fleet starts N Redis nodes and hurts them. The tests, the chaos harness and the demo of the
// command use it. There are three kinds behind one interface:
//
//   - [Embedded]: miniredis in this process; nothing to install, starts in no time.
//   - [Process]: the redis-server on PATH, one process a node.
//   - [Docker]: one container a node, with real packet loss where this process may make it.
//
// What each fault is, by kind:
//
//	fault        embedded              process               docker
//	Kill         connections dropped   SIGKILL               SIGKILL
//	Stop         as Kill               SIGTERM               SIGTERM
//	Pause        requests held         SIGSTOP               docker pause
//	Cut          the link              the link              iptables in the container, else the link
//	CutReplies   the link              the link              iptables in the container, else the link
//	Delay        the link              the link              the link
//	SetClock     –                     a preloaded library   a preloaded library
//
// The link is an in-process TCP proxy before each node, there with [Options.Links]. A [View] is one more
// of them, for one client alone. What a fleet cannot do it refuses with [ErrUnsupported]; it never passes
// over a fault in silence.
//
// Data in flight during a Cut is held, not lost, as TCP does it: a request sent into a Cut is applied
// after Heal, even where its client has given up and closed in between. So it is with Pause. A lock
// library must survive such ghost writes, and a test must expect them. A node that is killed takes the
// requests it had not yet read with it.
package fleet
