package redlock

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What one cycle costs on the client's side, without servers; see docs/performance.md.

func BenchmarkTally(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		t := newTally(5, 3, 50*time.Millisecond)
		for node := range 5 {
			t.cast(node, granted, span{low: int64(node), high: int64(node) + 200})
			if t.verdict() == won {
				break
			}
		}
	}
}

func BenchmarkRound(b *testing.B) {
	a := answer{vote: granted, micros: 1, clock: span{high: 200}}
	b.ReportAllocs()
	for b.Loop() {
		r := newRound(plan{call: call{script: standard.acquire}}, 5, 3, 50*time.Millisecond)
		for node := range 5 {
			r.record(node, a)
		}
	}
}

// discarding is a connection that takes all writes and never replies.
type discarding struct{ net.Conn }

func (discarding) Write(p []byte) (int, error)      { return len(p), nil }
func (discarding) Read([]byte) (int, error)         { return 0, io.EOF }
func (discarding) SetWriteDeadline(time.Time) error { return nil }
func (discarding) Close() error                     { return nil }

func BenchmarkEncodeAcquire(b *testing.B) {
	conn := redis.NewConn(discarding{}, 0, 0)
	res := newResource("", "bench/name", nil)
	stands := readiness{marker: marker("0123456789012345678901234567890123456789", "0123456789abcdef")}
	var args []any
	b.ReportAllocs()
	for b.Loop() {
		var token any = newToken("")
		r := newRound(plan{call: standard.acquireCall(res, "", token, millis(10*time.Second), 1_700_000_000_000_000)}, 5, 3, 0)
		q := request{round: r}
		args = q.arguments(args[:0], &stands, &node{})
		if err := conn.Send(q.name(), args...); err != nil {
			b.Fatal(err)
		}
		if err := conn.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeGrant(b *testing.B) {
	conn := redis.NewConn(repeating{bufio.NewReader(nil), []byte(":1795252116184561\r\n")}, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		reply, err := conn.Receive()
		if a := standard.acquire.parse(1, reply, err); a.vote != granted {
			b.Fatal(reply, err)
		}
	}
}

// repeating is a connection on which the same reply comes for ever.
type repeating struct {
	*bufio.Reader
	reply []byte
}

func (r repeating) Read(p []byte) (int, error) {
	n := 0
	for n+len(r.reply) <= len(p) {
		n += copy(p[n:], r.reply)
	}
	return n, nil
}
func (repeating) Write(p []byte) (int, error)      { return len(p), nil }
func (repeating) Close() error                     { return nil }
func (repeating) LocalAddr() net.Addr              { return nil }
func (repeating) RemoteAddr() net.Addr             { return nil }
func (repeating) SetDeadline(time.Time) error      { return nil }
func (repeating) SetReadDeadline(time.Time) error  { return nil }
func (repeating) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkScheduler moves one lease to its next renewal among a hundred thousand.
func BenchmarkScheduler(b *testing.B) {
	s := newScheduler(SystemClock())
	const leases = 100_000
	for i := range leases {
		s.set(&ownership{place: -1}, Instant(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		h, _ := s.next(1 << 62)
		s.set(h, h.due.Add(leases))
	}
}
