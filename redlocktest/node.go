package redlocktest

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/embeddedredis"
)

// A node is an embedded server, its clock and the network in front of it.
type node struct {
	name    string
	network network

	mu       sync.Mutex                    // guards what follows; taken before clockMu
	commands *embeddedredis.ServerCommands // nil: it is down
	redis    *miniredis.Miniredis
	ended    bool // the test is over

	clockMu sync.Mutex // guards ahead, and that the time of redis does not go back by itself
	ahead   time.Duration
}

// start starts a server without data. If it is new, it is in no quarantine. n.mu is held, or nobody else has n.
func (n *node) start(isNew bool) {
	m := miniredis.NewMiniRedis()
	n.tick(m)
	m.ClockTTL(true)
	// Clients with Config.Durable want a server that persists before it answers.
	n.redis, n.commands = m, embeddedredis.AnswerServerCommands(m, embeddedredis.Identity{Fsync: "always"})
	n.commands.Before(func(cmd string, args []string) bool {
		n.tick(m)
		if isNew {
			admit(cmd, args)
		}
		return true
	})
}

// tick tells the server the time.
func (n *node) tick(m *miniredis.Miniredis) {
	n.clockMu.Lock()
	defer n.clockMu.Unlock()
	m.SetTime(time.Now().Add(n.ahead))
}

// Where a call of scripts/ready.lua has its first key, and what the client asks for (ARGV[7]).
const (
	readyMarker = 2
	readyWord   = 2 + 4 + 6
	readyLength = 2 + 4 + 13
)

// admit makes an enrolment of the question whether a new node may grant. Otherwise the node would begin a quarantine. The
// first client so decides the configuration. On a node that has one, an enrolment changes nothing.
func admit(cmd string, args []string) {
	if cmd != "EVALSHA" || len(args) != readyLength || args[readyMarker] != "redlock:node" {
		return
	}
	switch args[readyWord] {
	case "", "durable": // and not "look": AgreedConfig must decide nothing
		args[readyWord] = "enroll"
	}
}

func (n *node) dial() (redis.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.commands == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	client, server := n.network.connect()
	n.commands.Serve(server)
	return redis.NewConn(client, 0, 0), nil
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
}

// stop ends the server, if it is up. n.mu is held.
func (n *node) stop() {
	if n.commands == nil {
		return
	}
	n.commands = nil
	n.network.reset()
	n.redis.Close() // waits for its goroutines
	n.network.set(func(network *network) { network.paused = false })
}

func (n *node) restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	if !n.ended {
		n.start(false)
	}
}

func (n *node) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.stop()
}

func (n *node) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.commands != nil {
		n.network.set(func(network *network) { network.paused = true })
	}
}

// step sets the clock. In Redis a key expires at a time of the clock. In miniredis it has a time to live, which a step
// forward shortens, but which a step back does not change.
func (n *node) step(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clockMu.Lock()
	defer n.clockMu.Unlock()
	now := time.Now().Add(n.ahead)
	n.ahead += by
	if n.commands == nil {
		return
	}
	n.redis.SetTime(now)
	if by < 0 {
		for _, key := range n.redis.Keys() {
			if left := n.redis.TTL(key); left > 0 {
				n.redis.SetTTL(key, left-by)
			}
		}
	}
	n.redis.SetTime(now.Add(by))
}
