package redlock

import "time"

// settings are what a client, its nodes and its subscribers share. They do not change after New.
type settings struct {
	cfg       Config
	protocol  *protocol
	agreement agreement
}

// stallTimeout is how long a connection may take to open, and to answer before it is closed as stalled.
func (s *settings) stallTimeout() time.Duration { return max(4*s.cfg.NodeTimeout, time.Second) }

// jitter returns a random duration from 0.5 d to 1.5 d.
func (s *settings) jitter(d time.Duration) time.Duration {
	return d/2 + s.protocol.random(d+1)
}

// newRound makes a round that does not compare clocks.
func (s *settings) newRound(p plan) *round {
	if p.t0 == 0 {
		p.t0 = s.cfg.Clock.Now()
	}
	return newRound(p, len(s.cfg.Nodes), s.cfg.Quorum, -1)
}

func (s *settings) allNodes() nodeSet { return nodeSet(1)<<len(s.cfg.Nodes) - 1 }
