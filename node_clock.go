package redlock

import (
	"fmt"
	"slices"
	"time"
)

// What is known of a server's clock, and how long a round trip to it takes.

// An observation is what one reply says about the server's clock.
type observation struct {
	offset int64         // the server's µs minus our clock's
	rtt    time.Duration // the request's round trip: the offset is wrong by no more than that
	at     Instant
}

// span is where the offset lies, however the round trip divides between request and reply.
func (o *observation) span() span {
	half := int64(o.rtt)/2e3 + 1
	return span{low: o.offset - half, high: o.offset + half}
}

// asOf is the observation at a later moment. The two clocks may have run apart since, by this fraction of the time.
func (o *observation) asOf(now Instant, drift float64) *observation {
	later := *o
	later.rtt += 2 * time.Duration(float64(now.Sub(o.at))*drift)
	return &later
}

// earliestAt is what the server's clock showed at that moment, at the earliest, in µs.
func (n *node) earliestAt(t Instant) int64 {
	o := n.clock.Load() // a node that is connected has one
	return int64(t)/1e3 + o.asOf(max(t, o.at), n.cfg.Drift).span().low
}

// inGroup are the most of these clocks that could all lie within apart of each other. Their spans, made longer by that,
// have a point in common, and the point where one of them begins is such a point.
func inGroup(clocks []*observation, apart time.Duration) (group []*observation) {
	for _, first := range clocks {
		begins := first.span().low
		var with []*observation
		for _, o := range clocks {
			if o.span().reaches(begins, apart.Microseconds()) {
				with = append(with, o)
			}
		}
		if len(with) > len(group) {
			group = with
		}
	}
	return group
}

// observe keeps the observation with the shortest round trip of the last second: it is the most exact one. It also notes
// the reading for light acquires, which then need not ask first. Only one request of each batch is sampled.
func (n *node) observe(q request, micros int64) {
	if !q.sampled {
		return
	}
	n.noteClock(clockSpan(micros, q.sentAt, q.heard), q.sentAt)
	o := observation{rtt: q.heard.Sub(q.sentAt), at: q.heard}
	n.trip.Store(int64(n.trips.add(o.rtt)))
	o.offset = micros - (int64(q.heard)-int64(o.rtt)/2)/1e3
	if old := n.clock.Load(); old == nil || o.rtt < old.rtt || q.heard.Sub(old.at) > observationAge {
		best := o
		n.clock.Store(&best)
	}
}

// clockSpan is where the difference between the server's clock and ours lies, if the server read its clock after the
// first moment and before the second (C1).
func clockSpan(micros int64, sent, heard Instant) span {
	return span{low: micros - int64(heard)/1e3 - 1, high: micros - int64(sent)/1e3 + 1}
}

// observationAge is how long an observation is preferred to a newer one with a longer round trip.
const observationAge = time.Second

// usualTrips is the number of round trips whose median is the usual one. Where delays vary, a single slow or fast round
// trip must not change which node is asked first. Four of seven can.
const usualTrips = 7

// trips holds the last round trips to a node.
type trips struct {
	last  [usualTrips]time.Duration
	count int
}

// add returns the new median; of an even number, the lower one of the two in the middle.
func (t *trips) add(trip time.Duration) time.Duration {
	t.last[t.count%usualTrips] = trip
	t.count++
	sorted := t.last
	known := sorted[:min(t.count, usualTrips)]
	slices.Sort(known)
	return known[(len(known)-1)/2]
}

func (n *node) learnTime(q request, reply any, err error) {
	if micros, err := serverTime(reply, err); err == nil {
		q.sampled = true
		n.observe(q, micros)
		n.noteDelay(q.heard.Sub(q.sentAt)) // a node that no acquire asks may have become slower too
	}
}

// serverTime reads the reply to TIME, in microseconds. It allocates nothing, because it is called once a flush.
func serverTime(reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		seconds, okSeconds := digits(parts[0])
		micros, okMicros := digits(parts[1])
		if okSeconds && okMicros {
			return seconds*1e6 + micros, nil
		}
	}
	return 0, fmt.Errorf("TIME replied %s, which is not two numbers", briefly(reply))
}

func digits(reply any) (n int64, ok bool) {
	text, _ := reply.([]byte)
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, 0 < len(text) && len(text) < 18
}
