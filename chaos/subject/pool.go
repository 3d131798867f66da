package subject

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The baselines use what an application would use: one connection pool per node.

const dialPatience = time.Second

// newPool makes a pool for one node. Every command on its connections times out after patience.
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

// run runs one script on a connection of the pool.
func run(pool *redis.Pool, script *redis.Script, args ...any) (any, error) {
	return borrow(pool, func(conn redis.Conn) (any, error) { return script.Do(conn, args...) })
}

// borrow calls use with a connection. If an idle connection turns out to be broken, borrow tries once more with
// another one. Production pools do the same: they test a connection before they lend it.
func borrow(pool *redis.Pool, use func(redis.Conn) (any, error)) (any, error) {
	for try := 0; ; try++ {
		conn := pool.Get()
		reply, err := use(conn)
		conn.Close()
		if err == nil || try > 0 || !broken(err) {
			return reply, err
		}
	}
}

// broken reports whether the connection was closed. A timeout does not count: the node is slow, and stays slow.
func broken(err error) bool {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError))
}

// millis converts d for PX and PEXPIRE. It is at least 1, because Redis refuses 0.
func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }
