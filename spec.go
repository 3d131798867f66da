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
	fair      bool
	owner     string // what follows the digits in its owner tokens
	err       error  // why it cannot be acquired
}

// keptFor is how long the keys must live after an acquire writes them, so that they live until minHold after the
// acquisition (H1), if that took no longer than acquisitionTime. 0: there is no minimum hold.
func (s *spec) keptFor() time.Duration {
	if s.minHold <= 0 {
		return 0
	}
	cfg := &s.client.cfg
	return s.minHold + driftOf(s.minHold, cfg.Drift) + s.acquisitionTime()
}

// acquisitionTime is how long an acquisition of a lock with a minimum hold may take: longer than one mostly takes that
// asks one node first (W3), then a quorum, and then all, and which waits because of its clocks (C2).
func (s *spec) acquisitionTime() time.Duration { return 5 * s.client.cfg.NodeTimeout }

// keepsLongEnough reports whether the nodes keep the keys for the minimum hold, after an acquisition that took so long.
func (s *spec) keepsLongEnough(took time.Duration) bool {
	return s.minHold <= 0 || took <= s.acquisitionTime()
}
