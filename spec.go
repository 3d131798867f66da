package redlock

import "time"

// A spec is what a Lock describes. It does not change after it was made.
type spec struct {
	client    *Client
	res       *resource
	ttl       time.Duration
	millis    any           // how long an acquire makes the keys live: ttl, or longer for minHold; a script argument
	maxHold   time.Duration // 0: none
	minHold   time.Duration // 0: none
	renew     bool
	reentrant bool
	err       error // why it cannot be acquired
}

// keptFor is how long the keys must live after an acquire writes them, so that they live until minHold after the
// acquisition (H1). A round takes up to two and a half NodeTimeouts: for the node that is asked first (W3), until the
// others are asked too, and for these. The wait of C2 takes up to two more. 0: there is no minimum hold.
func (s *spec) keptFor() time.Duration {
	if s.minHold <= 0 {
		return 0
	}
	cfg := &s.client.cfg
	return s.minHold + driftOf(s.minHold, cfg.Drift) + 5*cfg.NodeTimeout
}
