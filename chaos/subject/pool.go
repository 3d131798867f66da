package subject

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What the baselines have in common: a pool of connections for each node, as applications have, and the
// time they give one command.

const (
	dialPatience = time.Second
	pollEvery    = 5 * time.Millisecond // between two tries of those who wait
)

// newPool makes a pool for one node. Each command on its connections fails after patience.
func newPool(address string, patience time.Duration) *redis.Pool {
	dial := func(ctx context.Context) (redis.Conn, error) {
		options := []redis.DialOption{
			redis.DialConnectTimeout(min(dialPatience, patience)), redis.DialReadTimeout(patience), redis.DialWriteTimeout(patience),
		}
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "unix" {
			return redis.DialURLContext(ctx, address, options...)
		}
		if password, ok := u.User.Password(); ok {
			options = append(options, redis.DialPassword(password))
		}
		return redis.DialContext(ctx, "unix", u.Path, options...)
	}
	return &redis.Pool{MaxIdle: 16, IdleTimeout: time.Minute, DialContext: dial}
}

// do runs one command on a connection of the pool.
func do(pool *redis.Pool, command string, args ...any) (any, error) {
	return borrow(pool, func(conn redis.Conn) (any, error) { return conn.Do(command, args...) })
}

// run is do for a script.
func run(pool *redis.Pool, script *redis.Script, args ...any) (any, error) {
	return borrow(pool, func(conn redis.Conn) (any, error) { return script.Do(conn, args...) })
}

// borrow gives use a connection. An idle one whose server has gone meanwhile is replaced once: pools for
// production test theirs when they borrow them.
func borrow(pool *redis.Pool, use func(redis.Conn) (any, error)) (any, error) {
	for try := 0; ; try++ {
		conn := pool.Get()
		reply, err := use(conn)
		conn.Close()
		if err == nil || try > 0 || !stale(err) {
			return reply, err
		}
	}
}

func stale(err error) bool {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError))
}

// first is the node that locks of one master live on.
func first(o Options) (string, error) {
	if len(o.URLs) == 0 {
		return "", errors.New("no node")
	}
	return o.URLs[0], nil
}

// retry calls try until it has the lock, fails, or ctx ends: then somebody else holds it.
func retry(ctx context.Context, pause time.Duration, try func() (bool, error)) error {
	for {
		switch ok, err := try(); {
		case err != nil:
			return err
		case ok:
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrRefused, ctx.Err())
		case <-timer.C:
		}
	}
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// millis is for EX and PX, which refuse 0.
func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// step is where a client may be interrupted between two commands.
func (o Options) step(name string) error {
	if o.Step == nil {
		return nil
	}
	return o.Step(name)
}

// A timed lease is believed in for its TTL, counted from before it was asked for.
type timed struct {
	token string
	until time.Time
}

func (l timed) Valid() bool           { return time.Now().Before(l.until) }
func (l timed) Lost() <-chan struct{} { return nil }
func (l timed) Fence() uint64         { return 0 }
func (l timed) Token() string         { return l.token }
