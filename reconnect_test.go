package redlock

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// A dialler refuses connections, and notes the times since the first one. If replies are set, it makes one connection
// instead, the sixth, on which the server says this and nothing else. It breaks after two seconds.
type dialler struct {
	refusal error
	replies string

	mu    sync.Mutex
	begun time.Time
	times []time.Duration
}

func (d *dialler) dial(context.Context) (redis.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun.IsZero() {
		d.begun = time.Now()
	}
	d.times = append(d.times, time.Since(d.begun))
	if d.replies == "" || len(d.times) != 6 {
		return nil, d.refusal
	}
	client, server := net.Pipe()
	go func() { // ends when either end is closed
		_, _ = io.Copy(io.Discard, server)
	}()
	go func() {
		_, _ = io.WriteString(server, d.replies)
		time.Sleep(2 * time.Second)
		server.Close()
	}()
	return redis.NewConn(client, 0, 0), nil
}

// pauses are the times between the calls so far.
func (d *dialler) pauses() (all []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.times[1:] {
		all = append(all, d.times[i+1]-d.times[i])
	}
	return all
}

// growing is pauses that double from backoffMin until they are as long as this.
func growing(longest time.Duration, count int) (pauses []time.Duration) {
	for d := backoffMin; len(pauses) < count; d = min(2*d, longest) {
		pauses = append(pauses, d)
	}
	return pauses
}

// pausesOf is how long so many pauses last.
func pausesOf(r *reconnect, longest time.Duration, count int) (pauses []time.Duration) {
	for range count {
		begun := time.Now()
		r.pause(context.Background(), nil, longest)
		pauses = append(pauses, time.Since(begun))
	}
	return pauses
}

func TestThePausesBetweenConnectionsGrowUntilOneHasWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reconnect{settings: offline(t).settings}
		require.Equal(t, growing(backoffMax, 10), pausesOf(r, backoffMax, 10))
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, pausesOf(r, refusedMax, 3))
		require.Equal(t, []time.Duration{8 * time.Second, time.Second}, pausesOf(r, backoffMax, 2), "a limit is of later pauses")
		r.lasted(backoffMax)
		require.Equal(t, growing(backoffMax, 10), pausesOf(r, backoffMax, 10))
		r.lasted(backoffMax)
		r.lasted(backoffMax)
		require.Equal(t, growing(backoffMax, 1), pausesOf(r, backoffMax, 1))
	})
}

func TestAPauseBetweenConnectionsHasARandomPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{protocol: standard}
		lengths := map[time.Duration]bool{}
		for range 100 {
			d := pausesOf(&reconnect{settings: s}, backoffMax, 1)[0]
			require.GreaterOrEqual(t, d, backoffMin/2)
			require.LessOrEqual(t, d, backoffMin*3/2)
			lengths[d] = true
		}
		require.Greater(t, len(lengths), 50)
	})
}

func TestAPauseBetweenConnectionsEndsWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reconnect{settings: offline(t).settings, backoff: time.Hour}
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		r.pause(ctx, nil, time.Hour)
		require.Equal(t, time.Minute, time.Since(begun))
		quit := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(quit) })
		r.pause(t.Context(), quit, time.Hour)
		require.Equal(t, 2*time.Minute, time.Since(begun))
		r.pause(ctx, nil, time.Hour)          // ended before
		r.pause(t.Context(), quit, time.Hour) // the same
		require.Equal(t, 2*time.Minute, time.Since(begun))
	})
}

// A connection is open once the server has answered the whole handshake, in time.
func TestAConnectionThatIsNotAnsweredInTimeIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server) // it reads, and answers nothing
		e := offline(t).nodes[0].endpoint
		e.dial = func(context.Context) (redis.Conn, error) { return redis.NewConn(client, 0, 0), nil }
		begun := time.Now()
		_, _, err := e.open(t.Context(), time.Second, func(conn redis.Conn, login login) error {
			require.NoError(t, login.start(conn, []any{"PING"}))
			_, err := conn.Receive()
			return err
		})
		require.EqualError(t, err, "it did not answer within 1s")
		require.Equal(t, time.Second, time.Since(begun))
		_, err = client.Write(nil)
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// The login is in the same batch as the commands behind it. The server's refusal is told from theirs.
func TestALoginIsInTheSameBatchAsWhatFollows(t *testing.T) {
	for raw, wants := range map[string]string{
		"redis://h":                   "PING",
		"redis://secret@h/3":          "AUTH secret|SELECT 3|PING",
		"redis://user:secret@h?db=12": "AUTH user secret|SELECT 12|PING",
		"redis://user:@h":             "PING",
	} {
		e, err := Node{URL: raw}.endpoint("Nodes[0]", nil)
		require.NoError(t, err)
		var c batch
		login, err := e.sendLogin(t.Context(), &c)
		require.NoError(t, err)
		require.NoError(t, login.start(&c, []any{"PING"}))
		require.Equal(t, wants, strings.Join(c.sent, "|"))
		require.Equal(t, strings.Count(wants, "|"), c.received, "the caller receives the reply to PING")
		require.Equal(t, 1, c.flushes)
		refusing := batch{refusal: redis.Error("WRONGPASS")}
		login, err = e.sendLogin(t.Context(), &refusing)
		require.NoError(t, err)
		if err := login.start(&refusing, []any{"PING"}); c.received == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "it refused the login: WRONGPASS")
			require.True(t, isRefusal(err))
		}
	}
}

// A batch is a connection that notes what is sent.
type batch struct {
	redis.Conn
	refusal           error
	sent              []string
	flushes, received int
}

func (b *batch) Send(name string, args ...any) error {
	b.sent = append(b.sent, strings.TrimSpace(fmt.Sprintln(append([]any{name}, args...)...)))
	return nil
}

func (b *batch) Flush() error {
	b.flushes++
	return nil
}

func (b *batch) Receive() (any, error) {
	b.received++
	return "OK", b.refusal
}

func TestANodeThatIsAwayIsDialledEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := offline(t), dialler{refusal: redis.Error("LOADING")}
		n := c.nodes[0]
		n.endpoint.dial = d.dial
		ctx, cancel := context.WithCancel(t.Context())
		go n.run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, growing(backoffMax, 20), d.pauses()[:20])
		begun := time.Now()
		cancel()
		<-n.ended
		require.Equal(t, begun, time.Now())
	})
}

// A node that is closed while it is away tries once more to connect, because releases may be owed, and then ends.
func TestANodeThatIsAwayIsDialledOnceMoreWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := offline(t), dialler{refusal: errConnecting}
		n := c.nodes[0]
		n.endpoint.dial = d.dial
		go n.run(t.Context())
		time.Sleep(30*time.Millisecond + 1)
		synctest.Wait()
		require.Len(t, d.pauses(), 2)
		begun := time.Now()
		n.close()
		<-n.ended
		require.Equal(t, begun, time.Now())
		require.Len(t, d.pauses(), 3)
	})
}

// Once a connection has worked, the pause after its end is short again.
func TestAConnectionThatWorkedIsSoonReplaced(t *testing.T) {
	longer := append(growing(backoffMax, 5), 2*time.Second+backoffMin, 2*backoffMin, 4*backoffMin)
	t.Run("a node's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := offline(t), dialler{refusal: errConnecting}
			d.replies = "+OK\r\n:1\r\n:0\r\n$10\r\nrun_id:abc\r\n*2\r\n$1\r\n5\r\n$1\r\n5\r\n$-1\r\n" +
				strings.Repeat("+OK\r\n", len(c.protocol.scripts()))
			n := c.nodes[0]
			n.endpoint.dial = d.dial
			ctx, cancel := context.WithCancel(t.Context())
			go n.run(ctx)
			time.Sleep(time.Minute)
			cancel()
			<-n.ended
			require.Equal(t, longer, d.pauses()[:len(longer)])
		})
	})
	t.Run("a subscriber's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := offline(t), dialler{refusal: errConnecting}
			d.replies = ":0\r\n+PONG\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
			s := c.waiters.subscribers[0]
			s.node.endpoint.dial = d.dial
			s.running = false
			c.waiters.listen(newResource("", "x", nil))
			time.Sleep(time.Minute)
			close(c.ending)
			c.waiters.wait()
			require.Equal(t, longer, d.pauses()[:len(longer)])
		})
	})
}

func TestASubscriberDialsEverLessOften(t *testing.T) {
	for refusal, longest := range map[error]time.Duration{errConnecting: backoffMax, redis.Error("NOPERM"): refusedMax} {
		synctest.Test(t, func(t *testing.T) {
			c, d := offline(t), dialler{refusal: refusal}
			s := c.waiters.subscribers[0]
			s.node.endpoint.dial = d.dial
			s.running = false
			c.waiters.listen(newResource("", "x", nil)) // starts it
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Equal(t, growing(longest, 20), d.pauses()[:20])
			begun := time.Now()
			close(c.ending)
			c.waiters.wait()
			require.Equal(t, begun, time.Now())
		})
	}
}
