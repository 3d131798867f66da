// Package fleet starts N Redis nodes and injects faults into them. The tests, the chaos harness and the demo use it.
// There are three kinds of fleets with one interface:
//
//   - [Embedded]: miniredis in this process. Nothing to install, starts at once.
//   - [Process]: the redis-server on PATH, or what REDLOCK_SERVER names, one process per node.
//   - [Docker]: one container per node, with real packet loss if this process has the rights for it. A program has it if
//     it imports package dockerfleet, so that a program that starts no containers needs no module of Docker.
//
// How each kind implements the faults:
//
//	fault        embedded              process               docker
//	Kill         connections dropped   SIGKILL               SIGKILL
//	Stop         like Kill              SIGTERM               SIGTERM
//	Pause        requests held         SIGSTOP               docker pause
//	Cut          the link              the link              iptables in the container, or the link
//	CutReplies   the link              the link              iptables in the container, or the link
//	Delay        the link              the link              the link
//	SetClock     –                     a preloaded library   a preloaded library
//
// The link is a TCP proxy in this process in front of each node. It exists with [Options.Links]. A [View] is another
// such proxy, for one client only. A fault that a fleet does not support is an [ErrUnsupported]; it is never ignored.
//
// Data in flight during a Cut is held, not lost, as in TCP: a request that was sent during a Cut is executed after
// Heal, even if its client has closed the connection in between. The same holds for Pause. A lock library must survive
// such delayed writes, and a test must expect them. If a node is killed, requests that it has not read are lost.
package fleet
